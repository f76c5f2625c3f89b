#include "quantize/methods.h"

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

const InputStats& stats_of(const CalibrationStats& stats, const InputGroup& group) {
  const auto found = stats.inputs.find(group.input);
  if (found == stats.inputs.end())
    fail_input("the statistics hold nothing of {}, which {} reads; they are of another model",
               quote(group.input), group.tensors[0]->name);
  if (static_cast<std::int64_t>(found->second.absmax.size()) != group.channels)
    fail_input("the statistics hold {} channels of {}, but {} has {} columns; they are of another model",
               found->second.absmax.size(), quote(group.input), group.tensors[0]->name, group.channels);
  return found->second;
}

void add_input(QuantizePlan& plan, const InputGroup& group, InputTransform transform) {
  for (PlannedTensor* tensor : group.tensors) tensor->input = group.input;
  plan.inputs.push_back({group.input, std::move(transform)});
}

}  // namespace halfbyte
