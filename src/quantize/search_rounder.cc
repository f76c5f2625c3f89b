#include "quantize/search_rounder.h"

#include "core/fail.h"
#include "io/text.h"
#include "quantize/methods.h"
#include "quantize/scale_search.h"

namespace halfbyte {

void plan_importance(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
                     const CalibrationStats& stats,
                     const std::map<std::string, ResidualStatistics>& residual) {
  for (const InputGroup& group : group_by_input(checkpoint, plan, linears)) {
    InputImportance importance{.channels = stats_of(stats, group).mean_square};
    if (const PlannedInput* input = find_input(plan, group.input)) {
      const InputTransform& transform = input->transform;
      if (transform.info.hadamard > 1 || transform.info.outliers)
        fail_input("--rounding search goes with the methods rtn, smoothquant, arc and best, not with {}",
                   plan.method);
      for (std::size_t k = 0; k < transform.scale.size(); ++k)
        importance.channels[k] /= transform.scale[k] * transform.scale[k];
      if (transform.info.residual) {
        const auto found = residual.find(group.input);
        // What the second rounding sees is smaller than the input, by much the same factor for all channels of a block.
        importance.residual = found == residual.end() ? importance.channels : found->second.mean_square;
      }
    }
    plan.importance[group.input] = std::move(importance);
  }
}

SearchRounder::SearchRounder(const QuantizePlan& plan, std::span<const LinearSource> linears,
                             ThreadPool& pool)
    : plan_(plan), pool_(pool) {
  for (const LinearSource& linear : linears) input_of_[linear.name + ".weight"] = linear.input;
}

QuantizedTensor SearchRounder::round(const Weight& weight) {
  const std::string& name = input_of_.at(weight.tensor.name);
  const auto found = plan_.importance.find(name);
  if (found == plan_.importance.end())
    fail_input("the plan has no importance for {}, which {} reads", quote(name), weight.tensor.name);
  const InputImportance& importance = found->second;
  std::vector<float> columns;
  const PlannedInput* input = weight.tensor.input.empty() ? nullptr : find_input(plan_, weight.tensor.input);
  if (!input || !input->transform.info.gathered) {
    columns = importance.channels;
  } else {
    const auto& channels = input->transform.columns;
    const auto residual = static_cast<std::size_t>(input->transform.info.residual);
    for (std::size_t j = 0; j < channels.size(); ++j) {
      const std::vector<float>& of =
          j + residual < channels.size() ? importance.channels : importance.residual;
      if (channels[j] >= static_cast<std::int32_t>(of.size()))
        fail_input("the plan's importance for {} holds {} numbers, expected {}", quote(name), of.size(),
                   input->transform.info.channels);
      columns.push_back(channels[j] < 0 ? 0.0f : of[static_cast<std::size_t>(channels[j])]);
    }
  }
  if (static_cast<std::int64_t>(columns.size()) != weight.shape[1])
    fail_input("the plan's importance for {} holds {} numbers, expected {}", quote(name), columns.size(),
               weight.shape[1]);
  return search_scales(weight.values, weight.shape,
                       {.spec = *weight.tensor.spec,
                        .importance = columns,
                        .global_scale = weight.global_scale,
                        .name = weight.name},
                       pool_);
}

}  // namespace halfbyte
