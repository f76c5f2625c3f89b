#include "calibrate/moments.h"

#include <algorithm>

#include "core/tensor.h"
#include "ops/matmul_f32/op.h"

namespace halfbyte {

namespace {

Array<float> transposed(const float* x, std::int64_t rows, std::int64_t columns, ThreadPool& pool) {
  constexpr std::int64_t kTile = 32, kRows = 64;  // which the first-level cache holds
  Array<float> out(rows * columns);
  pool.parallel_for(ceil_div(columns, kTile), [&](std::int64_t item) {
    const std::int64_t last = std::min(columns, (item + 1) * kTile);
    for (std::int64_t first = 0; first < rows; first += kRows)
      for (std::int64_t k = item * kTile; k < last; ++k)
        for (std::int64_t r = first; r < std::min(rows, first + kRows); ++r)
          out[k * rows + r] = x[r * columns + k];
  });
  return out;
}

// out[first.., begin..] = a^T b of the rows [first, last) of a^T.
void multiply(const Array<float>& a, const Array<float>& b, std::int64_t rows, std::int64_t columns,
              std::int64_t first, std::int64_t last, std::int64_t begin, float* out, ThreadPool& pool) {
  matmul_f32({.m = last - first,
              .n = columns - begin,
              .k = rows,
              .activation = a.data() + first * rows,
              .activation_stride = rows,
              .weight = b.data() + begin * rows,
              .weight_stride = rows,
              .out = out + first * columns + begin,
              .out_stride = columns},
             pool);
}

}  // namespace

void second_moment(const float* x, std::int64_t rows, std::int64_t columns, float* out, ThreadPool& pool) {
  constexpr std::int64_t kPanel = 384;
  const Array<float> turned = transposed(x, rows, columns, pool);
  for (std::int64_t first = 0; first < columns; first += kPanel)
    multiply(turned, turned, rows, columns, first, std::min(columns, first + kPanel), first, out, pool);
  pool.parallel_for(columns, [&](std::int64_t j) {
    for (std::int64_t k = 0; k < j; ++k) out[j * columns + k] = out[k * columns + j];
  });
}

void cross_moment(const float* y, const float* x, std::int64_t rows, std::int64_t columns, float* out,
                  ThreadPool& pool) {
  const Array<float> left = transposed(y, rows, columns, pool), right = transposed(x, rows, columns, pool);
  multiply(left, right, rows, columns, 0, columns, 0, out, pool);
}

}  // namespace halfbyte
