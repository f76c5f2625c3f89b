// The 128x4 tile order that Blackwell tensor cores read block scales in; checkpoints never store it.
//   scale (row, column) of a matrix of `rows` rows with `columns` scales a row lies at
//     ((row / 128) * tiles + column / 4) * 512 + (row % 32) * 16 + (row / 32 % 4) * 4 + column % 4
//   with tiles = ceil(columns / 4), so one 512-byte tile holds 128 rows by 4 columns. Rows are padded to 128,
//   columns to 4, with zero bytes.
//   source: torchao 0.18.0 (to_blocked); the scale layout of CUTLASS and cuBLASLt for NVFP4 and MX operands.
#pragma once

#include <span>

#include "core/shape.h"
#include "formats/hd.h"

namespace halfbyte {

HB_HD constexpr std::int64_t swizzled_offset(std::int64_t row, std::int64_t column, std::int64_t columns) {
  const std::int64_t tiles = (columns + 3) / 4;
  return ((row / 128) * tiles + column / 4) * 512 + (row % 32) * 16 + (row / 32 % 4) * 4 + column % 4;
}

constexpr std::int64_t swizzled_bytes(std::int64_t rows, std::int64_t columns) {
  return ceil_div(rows, 128) * ceil_div(columns, 4) * 512;
}

// plain[rows, columns] -> tiled[swizzled_bytes(rows, columns)], padding cleared.
void swizzle_scales(std::span<const std::uint8_t> plain, std::int64_t rows, std::int64_t columns,
                    std::span<std::uint8_t> tiled);

// The way back; padding is dropped.
void unswizzle_scales(std::span<const std::uint8_t> tiled, std::int64_t rows, std::int64_t columns,
                      std::span<std::uint8_t> plain);

static_assert(swizzled_offset(0, 0, 4) == 0 && swizzled_offset(33, 1, 4) == 21 &&
              swizzled_offset(128, 0, 4) == 512);

}  // namespace halfbyte
