#include <algorithm>

#include "core/shape.h"
#include "ops/row_math/op.h"
#include "ops/silu_mul/op.h"

namespace halfbyte {

void silu_mul(const float* gate, const float* up, float* out, std::int64_t size, ThreadPool& pool) {
  constexpr std::int64_t kPerItem = 1 << 14;
  pool.parallel_for(ceil_div(size, kPerItem), [&](std::int64_t item) {
    const std::int64_t begin = item * kPerItem;
    silu_mul_row(gate + begin, up + begin, out + begin, std::min(kPerItem, size - begin));
  });
}

}  // namespace halfbyte
