#include "model/engine_input.h"

#include "ops/augment/op.h"
#include "ops/fake_quantize/op.h"
#include "ops/transform_input/op.h"

namespace halfbyte {

namespace {

float* grown(Array<float>& array, std::int64_t size) {
  if (array.size() < size) array = Array<float>(size);
  return array.data();
}

}  // namespace

InputTransform unchanged_input(std::int64_t channels) {
  InputTransform transform;
  transform.info.method = "rtn";
  transform.info.channels = transform.info.width = channels;
  return transform;
}

const float* change_input(const float* x, std::int64_t rows, const InputTransform& transform,
                          Array<float>& buffer, ThreadPool& pool) {
  const InputInfo& info = transform.info;
  if (!info.scaled && info.hadamard < 2 && !info.gathered) return x;
  float* out = grown(buffer, rows * changed_columns(info));
  transform_input({.rows = rows,
                   .channels = info.channels,
                   .x = x,
                   .scale = info.scaled ? transform.scale.data() : nullptr,
                   .direction = ScaleDirection::divide,
                   .hadamard = info.hadamard,
                   .columns = info.gathered ? transform.columns.data() : nullptr,
                   .width = changed_columns(info),
                   .out = out},
                  pool);
  return out;
}

const float* round_input(const float* changed, std::int64_t rows, const InputInfo& info,
                         std::span<const std::int32_t> residual, const ActivationSpec& activations,
                         Array<float>& buffer, ThreadPool& pool) {
  const std::int64_t main = changed_columns(info) - info.outliers;
  const bool fixed = activations.scope == ActivationScope::fixed && info.global_scale != 0.0f;
  const auto global = [&](float scale) { return fixed ? std::optional(scale) : std::nullopt; };
  const ScaleScope scope = activations.scope == ActivationScope::token ? ScaleScope::row : ScaleScope::tensor;
  float* out = grown(buffer, rows * info.width);
  if (info.residual) {
    augment({.rows = rows,
             .columns = main,
             .x = changed,
             .residual = residual.data(),
             .residual_count = info.residual,
             .spec = activations.spec,
             .scope = scope,
             .shared_scale = info.shared_scale,
             .global_scale = global(info.global_scale),
             .residual_global_scale = global(info.residual_global_scale),
             .out = out},
            pool);
    return out;
  }
  FakeQuantize part{.rows = rows,
                    .columns = main,
                    .x = changed,
                    .x_stride = info.width,
                    .out = out,
                    .out_stride = info.width,
                    .spec = activations.spec,
                    .scope = scope,
                    .global_scale = global(info.global_scale)};
  fake_quantize(part, pool);
  if (info.outliers) {
    part.columns = info.outliers;
    part.x = changed + main;
    part.out = out + main;
    part.spec = info.outlier_spec;
    part.global_scale = {};
    fake_quantize(part, pool);
  }
  return out;
}

}  // namespace halfbyte
