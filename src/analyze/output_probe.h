// What rounding does to the outputs of all linears that read one input, window by window.
#pragma once

#include <string>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/rounded_input.h"
#include "checkpoint/checkpoint.h"

namespace halfbyte {

// One way to round all linears of an input. transform must outlive its use.
struct Variant {
  QuantSpec spec;
  const InputTransform* transform = nullptr;
};

class OutputProbe {
 public:
  // linears: names without ".weight", all of one input.
  OutputProbe(const Checkpoint& checkpoint, std::vector<std::string> linears, std::vector<Variant> variants);

  // x [rows, channels] of one window; inputs: what the variants make of it, in their order. Reads the weights once.
  void add(const float* x, std::int64_t rows, const std::vector<EngineInput>& inputs, ThreadPool& pool);

  std::size_t linears() const { return linears_.size(); }
  double output_square(std::size_t linear) const;  // mean over tokens of |y|^2
  OutputError error(std::size_t linear, std::size_t variant) const;

 private:
  struct Sums {
    double both = 0, weights = 0;  // of |y_q - y|^2
  };
  struct LinearSums {
    std::string name;
    double square = 0;  // of |y|^2
    std::vector<Sums> variants;
  };
  const Checkpoint& checkpoint_;
  std::vector<LinearSums> linears_;
  std::vector<Variant> variants_;
  std::int64_t tokens_ = 0;
};

}  // namespace halfbyte
