// How 4-bit weights lie in memory for the tensor cores: tiles of 16 rows x 64 columns, each its codes and then its scales. An
// exact permutation of the codec's bytes, in functions of positions that host and device share.
//
// A tile is what a warp multiplies in four steps (mma.m16n8k16). Lane 4 g + t holds 16 codes of row g and 16 of row g + 8:
//   codes   [lane][row g, row g + 8][8 bytes]   512 bytes; two codes a byte as the codec packs them. nvfp4: columns 16 t to
//                                               16 t + 15, one block. Others: 8 t to 8 t + 7 and 32 + 8 t to 32 + 8 t + 7
//   scales  [g][s][row g, row g + 8]            s: the S blocks of a row in the tile: nvfp4 4, blocks of 32 2, larger ones 1
//                                               (whose scale then stands in each tile). One byte or one float32
// Tiles lie row of tiles by row of tiles, [ceil(N/16)][ceil(K/64)]. Beyond N and K the codes stand for 0, and the scales are 0.
#pragma once

#include "core/shape.h"
#include "formats/formats.h"
#include "formats/hd.h"
#include "formats/nf4.h"

namespace halfbyte {

inline constexpr int kTileRows = 16, kTileColumns = 64, kTileCodeBytes = 512;

struct W4Layout {
  std::int64_t rows, columns;  // N, K
  std::int64_t row_tiles, column_tiles;
  int scales_per_row;     // S
  int scale_bytes;        // 1 or 4
  int columns_per_scale;  // in a tile: 64 / S
  int block;              // elements of the codec's block
  bool sixteens;          // a lane's columns are one run of 16
  std::uint8_t zero;      // a byte of two codes that stand for 0

  static constexpr W4Layout of(const QuantSpec& spec, std::int64_t rows, std::int64_t columns) {
    const auto block = static_cast<int>(effective_block(spec, columns));
    const bool nvfp4 = spec.format == Format::nvfp4;
    const int scales = nvfp4 ? 4 : block == 32 ? 2 : 1;
    const bool bytes = spec.double_quant || nvfp4 || spec.format == Format::mxfp4;
    return {.rows = rows,
            .columns = columns,
            .row_tiles = ceil_div(rows, kTileRows),
            .column_tiles = ceil_div(columns, kTileColumns),
            .scales_per_row = scales,
            .scale_bytes = bytes ? 1 : 4,
            .columns_per_scale = kTileColumns / scales,
            .block = block,
            .sixteens = nvfp4,
            .zero = static_cast<std::uint8_t>(spec.format == Format::nf4 ? kNf4Zero * 17 : 0)};
  }

  HB_HD constexpr int scales_in_tile() const { return kTileRows * scales_per_row; }
  HB_HD constexpr int tile_bytes() const { return kTileCodeBytes + scales_in_tile() * scale_bytes; }
  HB_HD constexpr std::int64_t bytes() const { return row_tiles * column_tiles * tile_bytes(); }

  // Where byte `at` of a tile's codes comes from: its row, and the column of the first of its two codes, in the tile.
  struct Place {
    int row, column;
  };
  HB_HD constexpr Place code_place(int at) const {
    const int lane = at / 16, g = lane / 4, t = lane % 4, byte = at % 8;
    const int column = sixteens ? 16 * t + 2 * byte : byte / 4 * 32 + 8 * t + byte % 4 * 2;
    return {g + at % 16 / 8 * 8, column};
  }
  // The same for scale number `at`.
  HB_HD constexpr Place scale_place(int at) const {
    const int pair = at / 2;
    return {pair / scales_per_row + at % 2 * 8, pair % scales_per_row * columns_per_scale};
  }
};

}  // namespace halfbyte
