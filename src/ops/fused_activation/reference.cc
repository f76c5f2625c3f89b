// The ops of fused_activation in sequence, whole tensors between them.
#include <algorithm>
#include <cstring>

#include "formats/packing.h"
#include "formats/quantized_tensor.h"
#include "formats/source_dtype.h"
#include "formats/swizzle.h"
#include "ops/dequantize/op.h"
#include "ops/fused_activation/op.h"
#include "ops/fused_activation/silu.h"
#include "ops/quantize/op.h"
#include "ops/rms_norm/op.h"
#include "ops/transform_input/op.h"

namespace halfbyte {

namespace {

using Values = Array<float>;

Values widened(DType dtype, const void* from, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  Values out(rows * columns);
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t k = 0; k < columns; ++k)
      out[m * columns + k] = load_element(dtype, static_cast<const std::byte*>(from), m * stride + k);
  return out;
}

// h of op.h.
Values before_rounding(const FusedActivation& args, ThreadPool& pool) {
  const std::int64_t rows = args.rows, columns = args.columns;
  Values h = widened(args.dtype, args.x, rows, columns, args.x_stride);
  if (args.form == ActivationForm::silu_mul) {
    const Values up = widened(args.dtype, args.up, rows, columns, args.up_stride);
    for (std::int64_t i = 0; i < h.size(); ++i) h[i] = silu_mul(h[i], up[i]);
  }
  if (args.form == ActivationForm::norm) {
    if (args.residual) {
      const Values residual = widened(args.dtype, args.residual, rows, columns, columns);
      for (std::int64_t i = 0; i < h.size(); ++i) h[i] = round_to_dtype(args.dtype, residual[i] + h[i]);
    }
    if (args.residual_out)
      for (std::int64_t i = 0; i < h.size(); ++i)
        store_element(args.dtype, static_cast<std::byte*>(args.residual_out), i, h[i]);
    const Values weight = widened(args.norm_dtype, args.norm_weight, 1, columns, columns);
    rms_norm({.rows = rows,
              .columns = columns,
              .x = h.data(),
              .x_stride = columns,
              .weight = weight.data(),
              .eps = args.eps,
              .out = h.data(),
              .out_stride = columns},
             pool);
  }
  if (!args.order) return h;
  Values gathered(rows * args.width);
  transform_input({.rows = rows,
                   .channels = columns,
                   .x = h.data(),
                   .columns = args.order,
                   .width = args.width,
                   .out = gathered.data()},
                  pool);
  return gathered;
}

QuantizedTensor quantized(const FusedActivation& args, const float* values, std::int64_t rows,
                          std::int64_t columns, float global, ThreadPool& pool) {
  QuantizedTensor out = make_quantized(args.spec, {rows, columns}, DType::f32);
  out.global_scale = global;
  const auto bytes = std::as_bytes(std::span(values, static_cast<std::size_t>(rows * columns)));
  const TensorView view{.dtype = DType::f32, .shape = out.shape, .data = bytes};
  if (!quantize_reference({.values = view, .extent = {rows, columns}, .out = &out, .pool = &pool}) &&
      args.not_finite)
    *args.not_finite = 1;
  return out;
}

// Codes and scales of `part`, rows [first, ...), to where their blocks lie in a row.
template <typename Position>
void place(const FusedActivation& args, const QuantizedTensor& part, std::int64_t first, Position position) {
  const std::int64_t block = effective_block(args.spec, 0), blocks = part.shape[1] / block;
  const std::int64_t row_blocks = (activation_width(args) + args.chosen_count) / block;
  for (std::int64_t r = 0; r < part.shape[0]; ++r)
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t row = first + r, to = position(args, b, block);
      std::copy_n(part.codes.data() + (r * blocks + b) * block / 2, block / 2,
                  args.codes + (row * row_blocks + to) * block / 2);
      args.scales[args.scale_layout == ScaleLayout::rows ? row * row_blocks + to
                                                         : swizzled_offset(row, to, row_blocks)] =
          part.scales8[r * blocks + b];
    }
}

// Rounds rows [first, first + rows) of g under one global scale.
void round_rows(const FusedActivation& args, const Values& g, std::int64_t first, std::int64_t rows,
                float global, ThreadPool& pool) {
  const std::int64_t width = activation_width(args), chosen = args.chosen_count;
  const float* values = g.data() + first * width;
  const QuantizedTensor main = quantized(args, values, rows, width, global, pool);
  place(args, main, first, main_block_position);
  if (chosen == 0) return;
  Values q(rows * width), lost(rows * chosen);
  dequantize_reference(
      {.tensor = &main, .columns = width, .first = 0, .last = rows * width, .out = q.data()});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < chosen; ++j) {
      const std::int64_t i = r * width + args.chosen[j];
      lost[r * chosen + j] = values[i] - q[i];
    }
  place(args, quantized(args, lost.data(), rows, chosen, global, pool), first, residual_block_position);
}

}  // namespace

void fused_activation_reference(const FusedActivation& args, ThreadPool& pool) {
  check_fused_activation(args);
  const std::int64_t width = activation_width(args), block = effective_block(args.spec, 0);
  if (args.scale_layout == ScaleLayout::tiles_128x4)
    std::memset(args.scales, 0,
                static_cast<std::size_t>(swizzled_bytes(args.rows, (width + args.chosen_count) / block)));
  const Values g = before_rounding(args, pool);
  const bool nvfp4 = args.spec.format == Format::nvfp4;
  if (!nvfp4 || args.scope == ScaleScope::tensor)
    return round_rows(args, g, 0, args.rows, nvfp4 ? *args.global_scale : 1.0f, pool);
  for (std::int64_t m = 0; m < args.rows; ++m) {
    float amax = 0.0f;
    for (std::int64_t k = 0; k < width; ++k) amax = std::max(amax, abs_value(g[m * width + k]));
    args.row_scales[m] = nvfp4_global_scale(args.spec.global_scale, amax, DType::f32);
    round_rows(args, g, m, 1, args.row_scales[m], pool);
  }
}

}  // namespace halfbyte
