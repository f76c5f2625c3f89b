#include <algorithm>

#include "core/tensor.h"
#include "formats/source_dtype.h"
#include "ops/augment/op.h"
#include "ops/quantize/op.h"

namespace halfbyte {

void augment(const Augment& args, ThreadPool& pool) {
  const std::int64_t width = args.columns + args.residual_count;
  FakeQuantize main{.rows = args.rows,
                    .columns = args.columns,
                    .x = args.x,
                    .x_stride = args.columns,
                    .out = args.out,
                    .out_stride = width,
                    .spec = args.spec,
                    .scope = args.scope,
                    .global_scale = args.global_scale};
  // One global scale for x and its residuals is that of x, which then need not be rounded once more with them. Of tokens it is
  // not known here.
  const bool of_tensor = args.spec.format == Format::nvfp4 && args.scope == ScaleScope::tensor;
  if (args.shared_scale && of_tensor && !main.global_scale) {
    const TensorView x{
        .dtype = DType::f32,
        .shape = {args.rows, args.columns},
        .data = std::as_bytes(std::span(args.x, static_cast<std::size_t>(args.rows * args.columns)))};
    // A NaN or an infinity is refused below, with its place.
    if (const float largest = tensor_absmax(x, pool); is_finite(largest))
      main.global_scale = nvfp4_global_scale(args.spec.global_scale, largest, DType::f32);
  }
  const bool together = args.shared_scale && args.spec.format == Format::nvfp4 && !main.global_scale;
  fake_quantize(main, pool);
  if (args.residual_count == 0) return;
  const std::int64_t rows_per_item =
      std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, args.columns));
  pool.parallel_for(ceil_div(args.rows, rows_per_item), [&](std::int64_t item) {
    const std::int64_t last = std::min(args.rows, (item + 1) * rows_per_item);
    for (std::int64_t m = item * rows_per_item; m < last; ++m) {
      const float* x = args.x + m * args.columns;
      float* out = args.out + m * width;
      for (std::int64_t j = 0; j < args.residual_count; ++j)
        out[args.columns + j] = x[args.residual[j]] - out[args.residual[j]];
      if (together) std::copy_n(x, args.columns, out);
    }
  });
  FakeQuantize second = main;
  // Together: [x | r] is rounded as one tensor, which gives the first part once more.
  second.columns = together ? width : args.residual_count;
  second.out = together ? args.out : args.out + args.columns;
  second.x = second.out;
  second.x_stride = width;
  if (!args.shared_scale) second.global_scale = args.residual_global_scale;
  fake_quantize(second, pool);
}

}  // namespace halfbyte
