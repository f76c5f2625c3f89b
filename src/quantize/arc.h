// ARCQuant: the outlier channels of an input are rounded twice, the second time what the first rounding lost, and their
// weight columns are there twice, so that one product in one format carries the correction.
// ("Augmented residual channels", the method ARCQuant.) Needs statistics of the inputs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "calibrate/stats.h"
#include "quantize/plan.h"

namespace halfbyte {

// How many channels of an input have residuals. All go by absmax, the largest magnitude of each channel in calibration.
struct ResidualRule {
  enum class Kind : std::uint8_t {
    tau,  // channels with absmax above 2^-value times the largest; value 3 as published, 2 to 4 are sensible
    energy,   // the largest channels that together hold at most value percent of the sum of absmax
    fixed,    // value channels
    percent,  // value percent of K, rounded down
    budget,   // spread over the model, value percent of all weights' bytes (residual_budget.h; not by absmax)
  };
  Kind kind = Kind::tau;
  double value = 3;
};

// "tau", "tau=2", "energy=95", "fixed=64", "percent=5", "budget=5"; a missing value is 3, 95, 64, 5, 5.
ResidualRule parse_residual_rule(std::string_view text);

struct ArcOptions {
  // falling: columns by falling absmax, ties to the lower channel, as published; residuals of the first S.
  // natural: columns where they are, residuals of those S gathered behind.
  ColumnOrder order = ColumnOrder::falling;
  ResidualRule rule;
  std::int64_t cap_channels = 512;  // S is at most this and cap_percent of K
  double cap_percent = 10;
  bool shared_scale = false;  // residuals under the global scale of the input instead of one of their own
};

// S: the rule's count rounded up to a multiple of the block, at most the cap rounded down to one.
std::int64_t residual_channels(std::span<const float> absmax, const ArcOptions& options, std::int64_t block);

// The interleaved layout of the published kernels, as columns of the appended one [main | residual]: each block of the first
// ones is followed by the residual block that belongs to it. Only for falling order, where residual block b belongs to block b;
// whole blocks move, so codes and scales are permuted and nothing is computed. Counts are multiples of the block.
std::vector<std::int32_t> interleaved_columns(std::int64_t main, std::int64_t residual, std::int64_t block);

// The share of an input's channels that ARCQuant advises to have residuals.
inline constexpr double kLeastResidualShare = 0.005, kMostResidualShare = 0.05;

// A sentence on the shares of residual channels, where they are outside what is sensible; empty otherwise.
std::string residual_warning(const QuantizePlan& plan);

// Plans the input of every linear whose activations are rounded as the plan's are. K is padded with zero columns to a
// multiple of the block. Throws where activations are not rounded, a format has no blocks along a row, or the statistics are of
// another model. An input that gets no residual channels is left as it is, but for a rule that asks for none (fixed=0).
void plan_arc(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
              const CalibrationStats& stats, const ArcOptions& options);

}  // namespace halfbyte
