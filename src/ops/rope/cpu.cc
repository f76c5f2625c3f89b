#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "core/shape.h"
#include "ops/rope/op.h"

namespace halfbyte {

RopeTable::RopeTable(std::span<const float> inverse_frequencies)
    : inverse_frequencies_(static_cast<std::int64_t>(inverse_frequencies.size())) {
  std::copy(inverse_frequencies.begin(), inverse_frequencies.end(), inverse_frequencies_.begin());
}

void RopeTable::reserve(std::int64_t positions) {
  if (positions <= positions_) return;
  positions = std::max(positions, positions_ * 2);
  Array<float> cosines(positions * half()), sines(positions * half());
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < half(); ++i) {
      const float angle = static_cast<float>(p) * inverse_frequencies_[i];
      cosines[p * half() + i] = std::cos(angle);
      sines[p * half() + i] = std::sin(angle);
    }
  }
  cosines_ = std::move(cosines);
  sines_ = std::move(sines);
  positions_ = positions;
}

void rope(const Rope& args, const RopeTable& table, ThreadPool& pool) {
  constexpr std::int64_t kRowsPerItem = 64;
  const std::int64_t half = table.half();
  pool.parallel_for(ceil_div(args.rows, kRowsPerItem), [&](std::int64_t item) {
    const std::int64_t end = std::min(args.rows, (item + 1) * kRowsPerItem);
    for (std::int64_t r = item * kRowsPerItem; r < end; ++r) {
      const float* cosines = table.cosines(args.first_position + r);
      const float* sines = table.sines(args.first_position + r);
      for (std::int64_t h = 0; h < args.heads; ++h) {
        float* low = args.x + r * args.x_stride + h * 2 * half;
        float* high = low + half;
        for (std::int64_t i = 0; i < half; ++i) {
          const float a = low[i], b = high[i];
          low[i] = a * cosines[i] - b * sines[i];
          high[i] = b * cosines[i] + a * sines[i];
        }
      }
    }
  });
}

}  // namespace halfbyte
