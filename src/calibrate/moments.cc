#include "calibrate/moments.h"

#include <algorithm>

#include "core/shape.h"
#include "ops/matmul_f32/op.h"

namespace halfbyte {

namespace {

constexpr std::int64_t kPanel = 192;

}  // namespace

void second_moment(const float* x, std::int64_t rows, std::int64_t columns, float* out, ThreadPool& pool) {
  pool.parallel_for(ceil_div(columns, kPanel), [&](std::int64_t panel) {
    const std::int64_t first = panel * kPanel;
    matmul_tn_serial(std::min(kPanel, columns - first), columns - first, rows, x + first, columns, x + first,
                     columns, out + first * columns + first, columns);
  });
  pool.parallel_for(columns, [&](std::int64_t j) {
    for (std::int64_t k = 0; k < j; ++k) out[j * columns + k] = out[k * columns + j];
  });
}

void cross_moment(const float* y, const float* x, std::int64_t rows, std::int64_t columns, float* out,
                  ThreadPool& pool) {
  pool.parallel_for(ceil_div(columns, kPanel), [&](std::int64_t panel) {
    const std::int64_t first = panel * kPanel;
    matmul_tn_serial(std::min(kPanel, columns - first), columns, rows, y + first, columns, x, columns,
                     out + first * columns, columns);
  });
}

}  // namespace halfbyte
