// Launches the matmul_w4a16 kernels: one instance for each kind of scales, type and number of activations.
#include <cuda_runtime_api.h>

#include "ops/matmul_w4a16/kernel_small_m.cuh"
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

template <class Act, class Scales, int kMTiles>
void run(const SmallMParams& params, Stream stream) {
  const auto kernel = matmul_small_m<Act, Scales, kMTiles>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmallMSharedBytes);
  const dim3 grid(static_cast<unsigned>(params.shape.groups), static_cast<unsigned>(params.shape.splits));
  kernel<<<grid, kSmallMThreads, kSmallMSharedBytes, stream>>>(params);
}

template <class Act, class Scales>
void run(const SmallMParams& params, Stream stream) {
  params.m <= 8 ? run<Act, Scales, 1>(params, stream) : run<Act, Scales, 2>(params, stream);
}

template <class Act>
void run(const SmallMParams& params, W4Scales scales, Stream stream) {
  switch (scales) {
    case W4Scales::e4m3_sixteens:
      return run<Act, ScalesInWeights>(params, stream);
    case W4Scales::e8m0_halves:
      return run<Act, ScalesE8m0>(params, stream);
    case W4Scales::f32:
      return run<Act, ScalesF32<1>>(params, stream);
    case W4Scales::f32_halves:
      return run<Act, ScalesF32<2>>(params, stream);
    case W4Scales::nested_rows:
      return run<Act, ScalesNestedRows>(params, stream);
    case W4Scales::nested:
      return run<Act, ScalesNested<1>>(params, stream);
    case W4Scales::nested_halves:
      return run<Act, ScalesNested<2>>(params, stream);
  }
}

}  // namespace

int launch_pack_w4(const PackW4Params& params, Stream stream) {
  const std::int64_t tiles = params.layout.row_tiles * params.layout.column_tiles;
  pack_tiles<<<static_cast<unsigned>(ceil_div(tiles, 8)), 256, 0, stream>>>(params);
  return cudaGetLastError();
}

int launch_small_m(const SmallMParams& params, W4Scales scales, DType dtype, Stream stream) {
  if (dtype == DType::bf16) run<ActBf16>(params, scales, stream);
  if (dtype == DType::f16) run<ActFp16>(params, scales, stream);
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
