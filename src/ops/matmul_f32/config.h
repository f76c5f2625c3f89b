// Tile choice of the float32 product: a pure function of the shape.
#pragma once

#include <algorithm>
#include <cstdint>

namespace halfbyte {

struct MatmulF32Tile {
  std::int64_t m, n;
};

// Large enough that packing the weight (done anew for each row tile) costs a few percent, small enough that a
// window of 2048 tokens gives several tiles a core. One row (decoding) has nothing to share, so N alone is
// cut.
constexpr MatmulF32Tile matmul_f32_tile(std::int64_t m, std::int64_t n) {
  if (m <= 16) return {m, std::min<std::int64_t>(n, 256)};
  return {std::min<std::int64_t>(m, 512), std::min<std::int64_t>(n, 1024)};
}

}  // namespace halfbyte
