// Runs a model over text and measures, on the real inputs of its linears, what methods and formats would do to them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "analyze/analysis.h"
#include "calibrate/stats.h"
#include "model/model.h"
#include "quantize/arc.h"

namespace halfbyte {

struct AnalyzeOptions {
  QuantSpec spec;                    // weights and activations of the methods
  std::vector<std::string> methods;  // "rtn", "arc", "smoothquant", "hadamard"
  std::vector<QuantSpec> formats;    // candidates, rounded to nearest; bf16: left as it is
  std::vector<std::string> keep;     // linears to leave out, as in PlanOptions
  ArcOptions arc;
  std::string residual_rule = "tau=3";  // that of arc, as the user wrote it
  double alpha = 0.5;                   // smoothquant
  std::int64_t hadamard_block = 0;
  double tau = 3;  // channels above 2^-tau of the largest are counted
};

// windows: each is one forward pass and one tensor to round. Memory is that of one pass, one input's weights and a few
// numbers a channel and linear, whatever the number of windows; the same analysis for any number of threads. Throws bad_input
// where the model is quantized, an option fits nothing, the statistics are of another model, or an input is not finite. The
// model's observer is replaced and empty afterwards. Fills all of Analysis but where it comes from (command, model, stats, texts).
Analysis analyze(Model& model, const Checkpoint& checkpoint, const CalibrationStats& stats,
                 std::span<const std::span<const std::int32_t>> windows, const AnalyzeOptions& options,
                 ThreadPool& pool,
                 const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace halfbyte
