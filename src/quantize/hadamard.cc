#include "quantize/hadamard.h"

#include <algorithm>

#include "core/fail.h"
#include "ops/transform_input/op.h"
#include "quantize/methods.h"

namespace halfbyte {

void plan_hadamard(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
                   std::int64_t block) {
  if (block < 0 || (block & (block - 1)))
    fail_input("--hadamard-block is {}, expected a power of two, or 0 for the largest that fits", block);
  plan.method = "hadamard";
  for (const InputGroup& group : group_by_input(checkpoint, plan, linears)) {
    const std::int64_t largest = largest_power_of_two_in(group.channels);
    add_input(plan, group,
              {.name = {},
               .transform = {.info = {.method = "hadamard",
                                      .channels = group.channels,
                                      .width = group.channels,
                                      .hadamard = block ? std::min(block, largest) : largest},
                             .scale = {},
                             .columns = {}}});
  }
}

}  // namespace halfbyte
