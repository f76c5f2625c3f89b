#include "quantize/atom.h"

#include <algorithm>

#include "core/fail.h"
#include "quantize/methods.h"

namespace halfbyte {

void plan_atom(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
               const CalibrationStats& stats, const AtomOptions& options) {
  if (!plan.activations)
    fail_input("--method atom keeps outliers of activations in 8 bits: give --activations same or a format");
  if (options.outliers < 1) fail_input("--outliers is {}, expected 1 or more", options.outliers);
  plan.method = "atom";
  for (const InputGroup& group : group_by_input(checkpoint, plan, linears, [&](const PlannedTensor& tensor) {
         return tensor.activations == plan.activations;
       })) {
    for (const PlannedTensor* tensor : group.tensors)
      if (!has_row_blocks(tensor->spec->format))
        fail_input("--method atom needs weights with blocks along a row, not {}", to_string(*tensor->spec));
    PlannedInput planned{.name = {},
                         .transform = {.info = {.method = "atom",
                                                .channels = group.channels,
                                                .outliers = std::min(options.outliers, group.channels - 1),
                                                .outlier_spec = {.format = Format::int8}},
                                       .scale = {},
                                       .columns = {}},
                         .order = options.order,
                         .ranking = rank_by_absmax(stats_of(stats, group).absmax)};
    if (planned.transform.info.outliers < 1)
      fail_input("--method atom: {} has a single channel, which cannot be divided", group.input);
    set_columns(planned, 1);
    add_input(plan, group, std::move(planned));
  }
}

}  // namespace halfbyte
