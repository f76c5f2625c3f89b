// The sum of squares of a row in double, in an order that the columns alone decide: the same bits from one thread as from the
// thread block of a GPU.
//   sixteen   16 columns: s_j = x_j^2 + x_(j+4)^2 + x_(j+8)^2 + x_(j+12)^2 from left to right, then (s_0 + s_1) + (s_2 + s_3)
//   group     32 sixteens, a warp: number i meets i + 16, then i + 8, + 4, + 2, + 1
//   row       its groups of 512 columns from left to right
// What the row lacks of its last group counts as zeros. A square of float32 is exact in double, so one rounding is made a step.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "formats/hd.h"

namespace halfbyte {

inline constexpr int kSumSixteen = 16, kSumLanes = 32, kSumGroup = kSumSixteen * kSumLanes;

HB_HD inline double sum_of_sixteen_squares(const float (&x)[kSumSixteen]) {
  double sums[4] = {};
  for (int i = 0; i < kSumSixteen; ++i) {
    const double value = x[i];
#ifdef __CUDA_ARCH__
    sums[i % 4] = fma(value, value, sums[i % 4]);
#else
    sums[i % 4] += value * value;
#endif
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Of one row on the calling thread.
inline double sum_of_squares(const float* x, std::int64_t columns) {
  double total = 0;
  for (std::int64_t first = 0; first < columns; first += kSumGroup) {
    std::array<double, kSumLanes> sums{};
    const std::int64_t count = std::min<std::int64_t>(kSumGroup, columns - first);
    for (std::int64_t at = 0; at < count; at += kSumSixteen) {
      float sixteen[kSumSixteen] = {};
      std::copy_n(x + first + at, std::min<std::int64_t>(kSumSixteen, count - at), sixteen);
      sums[static_cast<std::size_t>(at / kSumSixteen)] = sum_of_sixteen_squares(sixteen);
    }
    for (std::size_t half = kSumLanes / 2; half; half /= 2)
      for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    total += sums[0];
  }
  return total;
}

// 1 / sqrt(mean + eps), which multiplies the row before the weights do.
HB_HD inline float rms_factor(double sum_of_squares, std::int64_t columns, float eps) {
  const auto mean = static_cast<float>(sum_of_squares / static_cast<double>(columns));
#ifdef __CUDA_ARCH__
  return 1.0f / sqrtf(mean + eps);
#else
  return 1.0f / std::sqrt(mean + eps);
#endif
}

}  // namespace halfbyte
