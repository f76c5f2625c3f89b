#include "quantize/static_scales.h"

#include <algorithm>

#include "core/fail.h"
#include "quantize/methods.h"

namespace halfbyte {

void plan_static_scales(const Checkpoint& checkpoint, QuantizePlan& plan,
                        std::span<const LinearSource> linears, const CalibrationStats& stats) {
  const auto is_static = [](const PlannedTensor& tensor) {
    return tensor.activations && tensor.activations->scope == ActivationScope::fixed &&
           format_info(tensor.activations->spec.format).scale == ScaleKind::e4m3_and_global;
  };
  for (const InputGroup& group : group_by_input(checkpoint, plan, linears, is_static)) {
    const InputStats& input = stats_of(stats, group);
    auto planned = std::ranges::find(plan.inputs, group.input, &PlannedInput::name);
    if (planned == plan.inputs.end()) {
      add_input(plan, group,
                {.name = {},
                 .transform = {.info = {.method = "rtn", .channels = group.channels, .width = group.channels},
                               .scale = {},
                               .columns = {}}});
      planned = plan.inputs.end() - 1;
    }
    InputTransform& transform = planned->transform;
    if (transform.info.hadamard > 1)
      fail_input(
          "--activation-scope static: statistics say nothing of rotated inputs; use tensor or token with "
          "--method hadamard");
    std::vector<float> magnitudes = input.absmax;
    for (std::size_t k = 0; k < transform.scale.size(); ++k) magnitudes[k] /= transform.scale[k];
    for (std::int64_t i = 0; i < transform.info.outliers; ++i)  // these have scales of their own
      magnitudes[static_cast<std::size_t>(planned->ranking[static_cast<std::size_t>(i)])] = 0.0f;
    const float absmax = std::max(*std::ranges::max_element(magnitudes), kZeroInputAbsmax);
    const GlobalScaleRule rule = group.tensors[0]->activations->spec.global_scale;
    transform.info.global_scale = nvfp4_global_scale(rule, absmax, DType::f32);
    if (transform.info.residual && !transform.info.shared_scale)
      transform.info.residual_global_scale = nvfp4_global_scale(rule, absmax / 6.0f, DType::f32);
  }
}

}  // namespace halfbyte
