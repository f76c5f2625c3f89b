// RMSNorm, a row after the other; what the sum of squares is, sum_of_squares.h says.
#include "core/shape.h"
#include "ops/rms_norm/op.h"
#include "ops/rms_norm/sum_of_squares.h"

namespace halfbyte {

void rms_norm(const RmsNorm& args, ThreadPool& pool) {
  constexpr std::int64_t kRowsPerItem = 32;
  pool.parallel_for(ceil_div(args.rows, kRowsPerItem), [&](std::int64_t item) {
    const std::int64_t end = std::min(args.rows, (item + 1) * kRowsPerItem);
    for (std::int64_t r = item * kRowsPerItem; r < end; ++r) {
      const float* x = args.x + r * args.x_stride;
      float* out = args.out + r * args.out_stride;
      const float factor = rms_factor(sum_of_squares(x, args.columns), args.columns, args.eps);
      for (std::int64_t c = 0; c < args.columns; ++c) out[c] = x[c] * factor * args.weight[c];
    }
  });
}

}  // namespace halfbyte
