// Residual channels where they help most: over a whole model, under a budget of weight bytes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "quantize/plan.h"

namespace halfbyte {

// What rounding does to one input, on some text (layerwise/residual_statistics.h).
struct ResidualStatistics {
  std::vector<float> mean_square;  // [K] E[r_k^2], r what the rounding of channel k lost
  std::map<std::string, double>
      output_square;  // by weight: E[sum over n of y_n^2], y what it makes of the input
};

// What residual channels of one input would save.
struct ResidualScore {
  std::string input;
  std::int64_t rows = 0;  // N of all weights that read it
  std::vector<double>
      share;  // [K] of the outputs' energy that the rounding of that channel changes, averaged over weights
};

struct ResidualChoice {
  std::vector<std::int32_t> ranking;  // [K] channels by falling share, equal ones in their order
  std::int64_t residual = 0;          // S, a multiple of the block
};

// share_k = E[r_k^2] * mean over the weights of sum over n of W_nk^2 / E[sum over n of y_n^2], W as it is multiplied with what is
// rounded. Reads every weight once.
std::vector<ResidualScore> score_residuals(const Checkpoint& checkpoint, QuantizePlan& plan,
                                           std::span<const LinearSource> linears,
                                           const std::map<std::string, ResidualStatistics>& statistics,
                                           ThreadPool& pool);

// Ranked channels in groups of one block; groups are taken by falling sum of shares over N (equal ones: earlier input first) as
// long as sum over inputs of S N is at most `budget` of sum of K N. What does not fit is passed over. At most half of an input's
// channels.
std::vector<ResidualChoice> spread_residuals(std::span<const ResidualScore> scores, double budget,
                                             std::int64_t block);

// Enters the choice for every input whose readers all have one format and the plan's activations: natural order, a global scale shared with
// the input. An input that a method scales already keeps that. percent: of the weights' bytes, 0 to 50.
void plan_residual_budget(const Checkpoint& checkpoint, QuantizePlan& plan,
                          std::span<const LinearSource> linears,
                          const std::map<std::string, ResidualStatistics>& statistics, double percent,
                          ThreadPool& pool);

}  // namespace halfbyte
