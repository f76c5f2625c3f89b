#include "analyze/engine_input.h"

#include "ops/augment/op.h"
#include "ops/fake_quantize/op.h"
#include "ops/transform_input/op.h"

namespace halfbyte {

InputTransform unchanged_input(std::int64_t channels) {
  InputTransform transform;
  transform.info = {.method = "rtn", .channels = channels, .width = channels};
  return transform;
}

bool rounds_activations(const QuantSpec& spec) {
  const BlockAxis axis = format_info(spec.format).axis;
  return axis == BlockAxis::row || axis == BlockAxis::whole_row;
}

EngineInput make_engine_input(const float* x, std::int64_t rows, const InputTransform& transform,
                              const QuantSpec& spec, ThreadPool& pool) {
  const InputInfo& info = transform.info;
  EngineInput input;
  input.rows = rows;
  input.residual = info.residual;
  input.main = info.width - info.residual;
  if (info.residual) input.residual_at = residual_positions(transform);
  if (info.scaled || info.hadamard > 1 || info.gathered) {
    input.changed = Array<float>(rows * input.main);
    transform_input({.rows = rows,
                     .channels = info.channels,
                     .x = x,
                     .scale = info.scaled ? transform.scale.data() : nullptr,
                     .direction = ScaleDirection::divide,
                     .hadamard = info.hadamard,
                     .columns = info.gathered ? transform.columns.data() : nullptr,
                     .width = input.main,
                     .out = input.changed.data()},
                    pool);
    x = input.changed.data();
  }
  if (!rounds_activations(spec)) return input;
  input.rounded = Array<float>(rows * info.width);
  if (input.residual)
    augment({.rows = rows,
             .columns = input.main,
             .x = x,
             .residual = input.residual_at.data(),
             .residual_count = input.residual,
             .spec = spec,
             .scope = ScaleScope::tensor,
             .shared_scale = info.shared_scale,
             .out = input.rounded.data()},
            pool);
  else
    fake_quantize({.rows = rows,
                   .columns = input.main,
                   .x = x,
                   .x_stride = input.main,
                   .out = input.rounded.data(),
                   .out_stride = input.main,
                   .spec = spec,
                   .scope = ScaleScope::tensor},
                  pool);
  return input;
}

}  // namespace halfbyte
