// Rounds weights by scale search, with the importance of channels that the plan holds.
#pragma once

#include <map>
#include <span>
#include <string>

#include "calibrate/stats.h"
#include "core/thread_pool.h"
#include "quantize/residual_budget.h"
#include "quantize/write.h"

namespace halfbyte {

// Enters the importance of every input's channels: mean squares of what the plan's method makes of them. Inputs that a method
// rotates are refused. Residual channels get theirs from `residual`, E[r_k^2] [K] by input.
void plan_importance(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
                     const CalibrationStats& stats,
                     const std::map<std::string, ResidualStatistics>& residual = {});

// Of a plan with Rounding::search. Plan and linears must outlive it.
class SearchRounder : public WeightRounder {
 public:
  SearchRounder(const QuantizePlan& plan, std::span<const LinearSource> linears, ThreadPool& pool);
  QuantizedTensor round(const Weight& weight) override;

 private:
  const QuantizePlan& plan_;
  std::map<std::string, std::string> input_of_;  // by tensor
  ThreadPool& pool_;
};

}  // namespace halfbyte
