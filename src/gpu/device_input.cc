// What a method does to an input and how it is rounded, as launches.
#include "gpu/device_input.h"

#include "formats/nvfp4.h"
#include "model/engine_input.h"
#include "ops/augment/cuda.h"
#include "ops/fake_quantize/cuda.h"
#include "ops/transform_input/cuda.h"

namespace halfbyte::cuda {

DeviceInput::DeviceInput(const Values& x, std::int64_t rows, std::int64_t columns, InputScratch& scratch,
                         InputCounts& counts, Stream stream)
    : x_(x),
      rows_(rows),
      unchanged_(unchanged_input(columns)),
      scratch_(scratch),
      counts_(counts),
      stream_(stream) {}

LinearValues DeviceInput::for_linear(const DeviceLinear& linear) {
  if (!linear.activations && !linear.transform) return {.values = x_};
  if (!current_ || activations_ != linear.activations || transform_ != linear.transform.get()) {
    activations_ = linear.activations;
    transform_ = linear.transform.get();
    current_ = make();
  }
  return *current_;
}

LinearValues DeviceInput::make() {
  const InputTransform& input = transform_ ? transform_->host->input : unchanged_;
  const float* changed = change(input);
  if (!activations_) return {.values = {changed, DType::f32}};
  const QuantSpec& spec = activations_->spec;
  if (activations_->scope == ActivationScope::fixed && input.info.global_scale != 0.0f) {
    const std::int64_t width = changed_columns(input.info), main = width - input.info.outliers;
    const float limit = nvfp4_range(spec.global_scale, input.info.global_scale);
    check_status(count_beyond(changed, rows_, main, width, limit, counts_.clipped.data(), stream_),
                 "launching count_beyond");
    counts_.values += rows_ * main;
  }
  round(changed, input.info);
  LinearValues rounded{.values = {scratch_.rounded.data(), DType::f32}};
  if (spec.format == Format::nvfp4) {
    rounded.global_scale = scratch_.global_scale.data();
    rounded.divides = spec.global_scale == GlobalScaleRule::compressed_tensors;
    rounded.of_rows = activations_->scope == ActivationScope::token;
  }
  return rounded;
}

const float* DeviceInput::change(const InputTransform& input) {
  const InputInfo& info = input.info;
  const auto* x = static_cast<const float*>(x_.data);
  if (!info.scaled && info.hadamard < 2 && !info.gathered) return x;
  check_status(transform_input({.rows = rows_,
                                .channels = info.channels,
                                .x = x,
                                .scale = info.scaled ? transform_->scale.data() : nullptr,
                                .direction = ScaleDirection::divide,
                                .hadamard = info.hadamard,
                                .columns = info.gathered ? transform_->columns.data() : nullptr,
                                .width = changed_columns(info),
                                .out = scratch_.changed.data()},
                               stream_),
               "launching transform_input");
  return scratch_.changed.data();
}

void DeviceInput::find_scale(const float* x, std::int64_t columns, std::int64_t stride, GlobalScaleRule rule,
                             float fixed, Buffer<float>& out) {
  if (fixed != 0.0f)
    check_status(fill(out.data(), fixed, 1, stream_), "launching fill");
  else
    check_status(find_global_scale({.rows = rows_,
                                    .columns = columns,
                                    .x = x,
                                    .x_stride = stride,
                                    .rule = rule,
                                    .of_rows = activations_->scope == ActivationScope::token,
                                    .absmax = scratch_.absmax.data(),
                                    .global_scale = out.data()},
                                   stream_),
                 "launching find_global_scale");
}

void DeviceInput::round(const float* changed, const InputInfo& info) {
  const std::int64_t before = changed_columns(info), main = before - info.outliers;
  const bool fixed = activations_->scope == ActivationScope::fixed;
  const bool of_rows = activations_->scope == ActivationScope::token;
  float* out = scratch_.rounded.data();
  const auto part = [&](const float* x, std::int64_t stride, std::int64_t columns, float* to,
                        const QuantSpec& spec, float fixed_scale, Buffer<float>* found) {
    Buffer<float>& scale = found ? *found : scratch_.residual_scale;
    if (spec.format == Format::nvfp4 && !found)
      find_scale(x, columns, stride, spec.global_scale, fixed_scale, scale);
    check_status(fake_quantize({.rows = rows_,
                                .columns = columns,
                                .x = x,
                                .x_stride = stride,
                                .out = to,
                                .out_stride = info.width,
                                .spec = spec,
                                .global_scale = scale.data(),
                                .of_rows = of_rows,
                                .not_finite = counts_.not_finite.data()},
                               stream_),
                 "launching fake_quantize");
  };
  const QuantSpec& spec = activations_->spec;
  if (spec.format == Format::nvfp4)
    find_scale(changed, main, before, spec.global_scale, fixed ? info.global_scale : 0.0f,
               scratch_.global_scale);
  part(changed, before, main, out, spec, 0.0f, &scratch_.global_scale);
  if (info.residual) {
    check_status(append_residual({.rows = rows_,
                                  .columns = main,
                                  .residual_count = info.residual,
                                  .x = changed,
                                  .residual = transform_->residual.data(),
                                  .out = out},
                                 stream_),
                 "launching append_residual");
    // |r| never exceeds |x| at its largest: one global scale for x and its residuals is that of x.
    part(out + main, info.width, info.residual, out + main, spec,
         fixed && info.global_scale != 0.0f ? info.residual_global_scale : 0.0f,
         info.shared_scale ? &scratch_.global_scale : nullptr);
  }
  if (info.outliers)
    part(changed + main, before, info.outliers, out + main, info.outlier_spec, 0.0f, nullptr);
}

}  // namespace halfbyte::cuda
