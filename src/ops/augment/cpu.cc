#include <algorithm>

#include "core/tensor.h"
#include "ops/augment/op.h"

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
      if (args.shared_scale) std::copy_n(x, args.columns, out);
    }
  });
  FakeQuantize second = main;
  // Shared: [x | r] is rounded as one tensor, which gives the first part once more.
  second.columns = args.shared_scale ? width : args.residual_count;
  second.out = args.shared_scale ? args.out : args.out + args.columns;
  second.x = second.out;
  second.x_stride = width;
  if (!args.shared_scale) second.global_scale = args.residual_global_scale;
  fake_quantize(second, pool);
}

}  // namespace halfbyte
