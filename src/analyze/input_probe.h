// Watches one input of linears, window by window: how its errors spread, what clips, what drifted since calibration.
#pragma once

#include <string>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/rounded_input.h"
#include "calibrate/stats.h"

namespace halfbyte {

// Bin of |error| / absmax in ErrorHistogram.
int error_bin(double ratio);

class InputProbe {
 public:
  // spec: what activations are rounded to; arc: what that method does to the input, or null. stats and arc must outlive this.
  InputProbe(std::string name, std::int64_t layer, const InputStats& stats, const QuantSpec& spec,
             const InputTransform* arc);

  // x [rows, channels] of one window, rounded as one tensor. rtn and arc: what the methods make of it, null where they are not
  // asked for.
  void add(const float* x, std::int64_t rows, const EngineInput* rtn, const EngineInput* arc,
           ThreadPool& pool);

  // tau: 2^-tau of the largest calibrated magnitude; capped: whether a cap cut the residual channels.
  InputAnalysis finish(double tau, bool capped) const;

 private:
  InputAnalysis found_;
  const InputStats& stats_;
  QuantSpec spec_;
  const InputTransform* arc_;
  double range_ = 0;  // nvfp4: of the static global scale
  std::int64_t tokens_ = 0;
  std::vector<float> absmax_;    // [channels]
  std::vector<double> squares_;  // [channels] sums
};

}  // namespace halfbyte
