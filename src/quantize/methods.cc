#include "quantize/methods.h"

#include <algorithm>
#include <numeric>

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

std::vector<std::int32_t> rank_by_absmax(std::span<const float> absmax) {
  std::vector<std::int32_t> ranking(absmax.size());
  std::iota(ranking.begin(), ranking.end(), 0);
  std::ranges::stable_sort(ranking, [&](std::int32_t a, std::int32_t b) {
    return absmax[static_cast<std::size_t>(a)] > absmax[static_cast<std::size_t>(b)];
  });
  return ranking;
}

PlannedInput& add_input(QuantizePlan& plan, const InputGroup& group, PlannedInput input) {
  for (PlannedTensor* tensor : group.tensors) tensor->input = group.input;
  input.name = group.input;
  plan.inputs.push_back(std::move(input));
  return plan.inputs.back();
}

}  // namespace halfbyte
