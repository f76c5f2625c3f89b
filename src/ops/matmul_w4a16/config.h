// How a matrix product with 4-bit weights is launched: pure functions of the shape and the device, tested without one.
#pragma once

#include <cstdint>
#include <string>

#include "core/shape.h"
#include "ops/matmul_w4a16/layout.h"

namespace halfbyte::cuda {

// The kernel for few activations. A warp keeps the activations of 256 columns (4 tiles) in registers and goes through rows of
// tiles with them; the warps of a thread block share columns, rows or both, and thread blocks split what K remains. One
// thread block runs on a multiprocessor at a time.
struct SmallMShape {
  int splits = 1;       // thread blocks along K; their sums are added in order by the last to finish
  int warps_k = 1;      // warps of a block along K
  int warps_rows = 16;  // warps of a block along N; warps_k * warps_rows = 16
  int row_tiles = 1;    // rows of tiles that a warp goes through
  int groups = 1;       // thread blocks along N
  friend bool operator==(const SmallMShape&, const SmallMShape&) = default;
};

inline constexpr int kSmallMWarps = 16;
inline constexpr int kSmallMColumnTiles = 4;     // of a warp
inline constexpr std::int64_t kSmallMRows = 16;  // rows of activations in one launch

// The shape whose busiest warp has least to do; of equals the one with fewer splits.
constexpr SmallMShape small_m_shape(std::int64_t row_tiles, std::int64_t column_tiles, int multiprocessors) {
  const std::int64_t units = ceil_div(column_tiles, kSmallMColumnTiles);
  const std::int64_t slots = multiprocessors;
  SmallMShape best;
  std::int64_t least = -1;
  for (int warps_k = kSmallMWarps; warps_k >= 1; warps_k /= 2) {
    const std::int64_t splits = ceil_div(units, warps_k), warps_rows = kSmallMWarps / warps_k;
    const std::int64_t room = slots / splits > 1 ? slots / splits : 1;
    const std::int64_t each = ceil_div(row_tiles, room * warps_rows),
                       groups = ceil_div(row_tiles, each * warps_rows);
    const std::int64_t work = each * ceil_div(groups * splits, slots);
    if (least >= 0 && work >= least) continue;
    least = work;
    best = {.splits = static_cast<int>(splits),
            .warps_k = warps_k,
            .warps_rows = static_cast<int>(warps_rows),
            .row_tiles = static_cast<int>(each),
            .groups = static_cast<int>(groups)};
  }
  return best;
}

// "small_m: 2 splits x 128 groups of 16 x 1 warps, 7 rows of tiles each"
std::string to_string(const SmallMShape& shape);

// Every workspace begins with as many counters of 32 bits, zero before and after a call: one for each set of thread blocks that
// share K, and those run at the same time.
inline constexpr std::int64_t kWorkspaceCounters = 1024;

// Bytes of workspace: counters, then partial sums [splits][16][N] of float32.
constexpr std::int64_t small_m_workspace(const SmallMShape& shape, std::int64_t rows) {
  return 4 * (kWorkspaceCounters + (shape.splits == 1 ? 0 : shape.splits * kSmallMRows * rows));
}

// The kernel for many activations: 128 rows of weights x 32 to 256 activations a thread block; where such blocks are few,
// several share K.
struct WideShape {
  int activations = 256;  // of a block: 32, 64, 128 or 256
  int row_blocks = 1, m_blocks = 1;
  int splits = 1;
  int column_tiles = 1;  // of a split
  friend bool operator==(const WideShape&, const WideShape&) = default;
};

inline constexpr int kWideRows = 128;

constexpr WideShape wide_shape(std::int64_t m, std::int64_t row_tiles, std::int64_t column_tiles,
                               int multiprocessors) {
  WideShape shape;
  shape.activations = m <= 32 ? 32 : m <= 64 ? 64 : m <= 128 ? 128 : 256;
  shape.row_blocks = static_cast<int>(ceil_div(row_tiles * kTileRows, kWideRows));
  shape.m_blocks = static_cast<int>(ceil_div(m, shape.activations));
  const std::int64_t blocks = std::int64_t{shape.row_blocks} * shape.m_blocks;
  // A split of fewer than 8 tiles is not worth its sum.
  const std::int64_t most = column_tiles / 8 < 1 ? 1 : column_tiles / 8, room = multiprocessors / blocks;
  const std::int64_t splits = room < 1 ? 1 : room < most ? room : most;
  shape.column_tiles = static_cast<int>(ceil_div(column_tiles, splits));
  shape.splits = static_cast<int>(ceil_div(column_tiles, shape.column_tiles));
  return shape;
}

// "wide: 128 rows x 64 activations, 32 x 1 blocks x 4 splits of 16 tiles"
std::string to_string(const WideShape& shape);

// Numbers of partial sums, [splits][m][N] of float32, rounded up; none without splits.
constexpr std::int64_t wide_partial(const WideShape& shape, std::int64_t m, std::int64_t rows) {
  return shape.splits == 1 ? 0 : ceil_div(shape.splits * m * rows, 256) * 256;
}
// Bytes of workspace: counters, partial sums, the activations in the order of the kernel.
constexpr std::int64_t wide_workspace(const WideShape& shape, std::int64_t m, std::int64_t rows,
                                      std::int64_t column_tiles) {
  return 4 * (kWorkspaceCounters + wide_partial(shape, m, rows)) +
         2 * column_tiles * kTileColumns * shape.m_blocks * shape.activations;
}

}  // namespace halfbyte::cuda
