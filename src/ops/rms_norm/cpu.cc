// The sum of squares runs in double over eight fixed lanes, so the result is the same on every target and
// thread count.
#include <array>
#include <cmath>

#include "core/shape.h"
#include "ops/rms_norm/op.h"

namespace halfbyte {

void rms_norm(const RmsNorm& args, ThreadPool& pool) {
  constexpr std::int64_t kLanes = 8, kRowsPerItem = 32;
  pool.parallel_for(ceil_div(args.rows, kRowsPerItem), [&](std::int64_t item) {
    const std::int64_t end = std::min(args.rows, (item + 1) * kRowsPerItem);
    for (std::int64_t r = item * kRowsPerItem; r < end; ++r) {
      const float* x = args.x + r * args.x_stride;
      float* out = args.out + r * args.out_stride;
      std::array<double, kLanes> sums{};
      std::int64_t c = 0;
      for (; c + kLanes <= args.columns; c += kLanes)
        for (std::int64_t l = 0; l < kLanes; ++l)
          sums[static_cast<std::size_t>(l)] += static_cast<double>(x[c + l]) * x[c + l];
      double sum = 0;
      for (double lane : sums) sum += lane;
      for (; c < args.columns; ++c) sum += static_cast<double>(x[c]) * x[c];
      const auto mean = static_cast<float>(sum / static_cast<double>(args.columns));
      const float factor = 1.0f / std::sqrt(mean + args.eps);
      for (c = 0; c < args.columns; ++c) out[c] = x[c] * factor * args.weight[c];
    }
  });
}

}  // namespace halfbyte
