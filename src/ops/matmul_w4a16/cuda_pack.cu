// Packs 4-bit weights into tiles on the device.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "ops/matmul_w4a16/launch.h"

namespace halfbyte::cuda {

namespace {

// A warp a tile.
__global__ void __launch_bounds__(256) pack_tiles(const __grid_constant__ PackW4Params p) {
  const W4Layout& layout = p.layout;
  const std::int64_t tile = (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) / 32;
  if (tile >= layout.row_tiles * layout.column_tiles) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t first_row = tile / layout.column_tiles * kTileRows,
                     first_column = tile % layout.column_tiles * kTileColumns;
  std::uint8_t* out = p.tiles + tile * layout.tile_bytes();
  // The four bytes of a word lie together in a row of codes: 8 columns, inside or outside as one.
  for (int at = 4 * lane; at < kTileCodeBytes; at += 128) {
    const auto place = layout.code_place(at);
    const std::int64_t row = first_row + place.row, column = first_column + place.column;
    std::uint32_t word = layout.zero * 0x01010101u;
    if (row < layout.rows && column < layout.columns) {
      const std::uint8_t* from = p.codes + (row * layout.columns + column) / 2;
      word = from[0] | from[1] << 8 | from[2] << 16 | static_cast<std::uint32_t>(from[3]) << 24;
    }
    *reinterpret_cast<std::uint32_t*>(out + at) = word;
  }
  for (int i = lane; i < layout.scales_in_tile(); i += 32) {
    const auto place = layout.scale_place(i);
    const std::int64_t row = first_row + place.row, column = first_column + place.column;
    const bool inside = row < layout.rows && column < layout.columns;
    const std::int64_t block = row * (layout.columns / layout.block) + column / layout.block;
    std::uint8_t* to = out + kTileCodeBytes + i * layout.scale_bytes;
    if (layout.scale_bytes == 1)
      *to = inside ? p.scales8[block] : std::uint8_t{0};
    else
      *reinterpret_cast<float*>(to) = inside ? p.scales[block] : 0.0f;
  }
}

}  // namespace

int launch_pack_w4(const PackW4Params& params, Stream stream) {
  const std::int64_t tiles = params.layout.row_tiles * params.layout.column_tiles;
  pack_tiles<<<static_cast<unsigned>(ceil_div(tiles, 8)), 256, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
