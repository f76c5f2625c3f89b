// Device code of matmul_w4a16 for up to 16 rows of activations, where the time is that of reading the weights. The product is
// made as out^T = W A^T: 16 rows of weights are the left operand of mma.m16n8k16, 8 rows of activations the right one.
#pragma once

#include <cstdint>

#include "ops/matmul_w4a16/kernel_w4.cuh"

namespace halfbyte::cuda {

// ---- shared memory --------------------------------------------------------------------------------------------------

inline constexpr int kSmallMThreads = 32 * kSmallMWarps;
// Bytes of two codes -> their two levels, once for each of the 32 lanes: no two lanes of a warp ever meet in a bank. Rows of
// 256 bytes, of which the upper half is not used, so that a permutation of bytes makes the offset: {4 lane, code byte}.
inline constexpr int kPairTableBytes = 256 * 256;
inline constexpr int kMapBytes = 256 * 4;

// Sums of a warp that wait for those of the others: [row of tiles][activation][16 rows + 4], padded against bank conflicts;
// 256 results for two threads each. Two sets, so that one is added up while the other is filled. The 2 more keep the halves
// of the warps in different banks.
inline constexpr int kSumStride = kTileRows + 4;
template <int kMTiles>
inline constexpr int kWaitingTiles = 2 / kMTiles;
template <int kMTiles>
inline constexpr int kSumsOfTile = 8 * kMTiles* kSumStride;
inline constexpr int kSumsOfSet = 2 * 8 * kSumStride, kSumsOfWarp = 2 * kSumsOfSet + 2;
static_assert(kSmallMThreads == 2 * 2 * 8 * kTileRows);
inline constexpr int kSmallMSharedBytes = kPairTableBytes + kMapBytes + kSmallMWarps * kSumsOfWarp * 4;

// ---- the kernel -----------------------------------------------------------------------------------------------------

// A lane's part of a tile.
template <class Scales>
struct TilePart {
  uint4 codes{};
  Scales scales{};
};

// The levels of byte i of a word.
template <int i>
__device__ __forceinline__ std::uint32_t pair_at(const char* table, std::uint32_t word, std::uint32_t lane4) {
  return *reinterpret_cast<const std::uint32_t*>(table + __byte_perm(word, lane4, 0x5504 | i << 4));
}

// Adds the product of a tile with the activations of its columns, `b`, to sums[8 activations each]. kChains > 1 breaks the
// chain of additions.
template <class Act, class Scales, int kMTiles, int kChains>
__device__ __forceinline__ void multiply_tile(const SmallMParams& p, const char* table,
                                              const typename Scales::Row& row, const TilePart<Scales>& tile,
                                              const std::uint32_t (&b)[kMTiles][8],
                                              float (&sums)[kChains][kMTiles][4]) {
  const unsigned lane4 = threadIdx.x % 32 * 4;
  auto fragment = [&](auto step, std::uint32_t(&a)[4]) {
    constexpr int kStep = decltype(step)::value, kByte = kStep % 2 * 2;
    const std::uint32_t low = kStep < 2 ? tile.codes.x : tile.codes.y,
                        high = kStep < 2 ? tile.codes.z : tile.codes.w;
    a[0] = pair_at<kByte>(table, low, lane4);
    a[1] = pair_at<kByte>(table, high, lane4);
    a[2] = pair_at<kByte + 1>(table, low, lane4);
    a[3] = pair_at<kByte + 1>(table, high, lane4);
  };
  if constexpr (Scales::kInWeights) {
    const std::uint32_t low = __byte_perm(tile.scales.both, 0, 0x4040) << Act::kScaleShift,
                        high = __byte_perm(tile.scales.both, 0, 0x4141) << Act::kScaleShift;
    auto step = [&](auto number) {
      constexpr int kStep = decltype(number)::value;
      std::uint32_t a[4];
      fragment(number, a);
      a[0] = Act::multiply(a[0], low);
      a[1] = Act::multiply(a[1], high);
      a[2] = Act::multiply(a[2], low);
      a[3] = Act::multiply(a[3], high);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m)
        Act::mma(sums[kStep % kChains][m], a, b[m][2 * kStep], b[m][2 * kStep + 1]);
    };
    step(Constant<0>{});
    step(Constant<1>{});
    step(Constant<2>{});
    step(Constant<3>{});
  } else {
    constexpr int kStepsOfScale = 4 / Scales::kPerRow;
    const float* map = reinterpret_cast<const float*>(table + kPairTableBytes);
    float part[kMTiles][4];
    auto step = [&](auto number) {
      constexpr int kStep = decltype(number)::value, kHalf = kStep / kStepsOfScale;
      std::uint32_t a[4];
      fragment(number, a);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        if constexpr (kStep % kStepsOfScale == 0)
#pragma unroll
          for (float& x : part[m]) x = 0.0f;
        Act::mma(part[m], a, b[m][2 * kStep], b[m][2 * kStep + 1]);
      }
      if constexpr (kStep % kStepsOfScale == kStepsOfScale - 1) {
        const float low = tile.scales.value(p, map, row, 2 * kHalf),
                    high = tile.scales.value(p, map, row, 2 * kHalf + 1);
#pragma unroll
        for (int m = 0; m < kMTiles; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            sums[0][m][i] = __fmaf_rn(part[m][i], i < 2 ? low : high, sums[0][m][i]);
      }
    };
    step(Constant<0>{});
    step(Constant<1>{});
    step(Constant<2>{});
    step(Constant<3>{});
  }
}

// The activations of a tile's columns: [8 rows of activations] x [64 columns], in the order of the lane's codes.
template <bool kSixteens>
__device__ __forceinline__ void load_activations(const SmallMParams& p, int activation, int column_tile,
                                                 std::uint32_t (&b)[8]) {
  const unsigned t = threadIdx.x % 4;
  const int first = column_tile * kTileColumns + static_cast<int>(kSixteens ? 16 * t : 8 * t);
  const int second = first + (kSixteens ? 8 : 32);
  const auto* row =
      static_cast<const std::uint16_t*>(p.activations) + static_cast<std::int64_t>(activation) * p.columns;
  uint4 low{}, high{};
  if (activation < p.m) {
    if (first < p.columns) low = __ldg(reinterpret_cast<const uint4*>(row + first));
    if (second < p.columns) high = __ldg(reinterpret_cast<const uint4*>(row + second));
  }
  b[0] = low.x, b[1] = low.y, b[2] = low.z, b[3] = low.w;
  b[4] = high.x, b[5] = high.y, b[6] = high.z, b[7] = high.w;
}

// Where a lane finds its parts of the tiles of its warp's columns, in one row of tiles after the other.
template <class Scales>
struct TileReader {
  const std::uint8_t *codes, *scales;
  std::int64_t stride;  // to the next row of tiles
  unsigned unit, unit_stride;

  __device__ TileReader(const SmallMParams& p, int row_tile, int column_tile) {
    const std::uint8_t* tile =
        p.tiles + (static_cast<std::int64_t>(row_tile) * p.column_tiles + column_tile) * kTileBytes<Scales>;
    codes = tile + threadIdx.x % 32 * 16;
    scales = tile + kTileCodeBytes;
    stride = static_cast<std::int64_t>(p.column_tiles) * kTileBytes<Scales>;
    unit_stride = static_cast<unsigned>(p.columns / 32) * kTileRows;
    unit = (static_cast<unsigned>(row_tile) * kTileRows + threadIdx.x % 32 / 4) *
               static_cast<unsigned>(p.columns / 32) +
           static_cast<unsigned>(column_tile) * 2;
  }
  __device__ void load(const SmallMParams& p, int j, TilePart<Scales>& part) const {
    part.codes = load_once(reinterpret_cast<const uint4*>(codes + j * kTileBytes<Scales>));
    part.scales.template load<FromGlobal>(p, scales + j * kTileBytes<Scales>,
                                          unit + 2 * static_cast<unsigned>(j));
  }
  __device__ void next_row() { codes += stride, scales += stride, unit += unit_stride; }
};

// Grid (groups, splits). Each warp takes its 4 columns of tiles through its rows of tiles. A tile is loaded into registers one
// row of tiles ahead. The sums of a warp meet those of the other warps along K in shared memory: a warp that has left its sums
// there goes on and adds up those of all only after its next row of tiles, when the others are there too. The sums of the
// splits meet in the workspace, where the last thread block to arrive adds them in order.
template <class Act, class Scales, int kMTiles>
__global__ void __launch_bounds__(kSmallMThreads, 1) matmul_small_m(const __grid_constant__ SmallMParams p) {
  extern __shared__ __align__(256) char shared[];
  __shared__ std::uint64_t sums_ready;
  __shared__ bool last;
  constexpr int kColumns = kSmallMColumnTiles, kWaiting = kWaitingTiles<kMTiles>;
  constexpr int kChains = Scales::kInWeights && kMTiles == 1 ? 2 : 1;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32),
            g = lane / 4, t = lane % 4;
  float* all_sums = reinterpret_cast<float*>(shared + kPairTableBytes + kMapBytes);
  float* my_sums = all_sums + warp * kSumsOfWarp;

  const int warps_k = p.shape.warps_k, warps_rows = p.shape.warps_rows, row_tiles = p.shape.row_tiles;
  const int warp_k = warp % warps_k, warp_row = warp / warps_k;
  const int first_column = (static_cast<int>(blockIdx.y) * warps_k + warp_k) * kColumns;
  const int columns = max(0, min(kColumns, p.column_tiles - first_column));
  const int block_row = static_cast<int>(blockIdx.x) * warps_rows * row_tiles,
            first_row = block_row + warp_row * row_tiles;
  const int rows = columns == 0 ? 0 : max(0, min(row_tiles, p.row_tiles - first_row));

  TileReader<Scales> reader(p, first_row, first_column);
  typename Scales::Row next_row{};
  if (rows > 0) next_row.load(p, reader.unit);
  TilePart<Scales> tiles[kColumns];  // beyond K zeros, which meet activations of 0
#pragma unroll
  for (int j = 0; j < kColumns; ++j)
    if (rows > 0 && j < columns) reader.load(p, j, tiles[j]);
  std::uint32_t b[kColumns][kMTiles][8];
#pragma unroll
  for (int j = 0; j < kColumns; ++j)
#pragma unroll
    for (int m = 0; m < kMTiles; ++m)
      load_activations<Scales::kInWeights>(p, m * 8 + g, first_column + j, b[j][m]);
  const float factor = global_factor(p);
#pragma unroll
  for (int i = 0; i < 256 * 8; i += kSmallMThreads) {
    const unsigned byte = (static_cast<unsigned>(i) + threadIdx.x) / 8, high = p.levels[byte >> 4],
                   low = p.levels[byte & 15u];
    const std::uint32_t pair = p.high_first ? high | low << 16 : low | high << 16;
    reinterpret_cast<uint4*>(shared)[byte * 16 + threadIdx.x % 8] = {pair, pair, pair, pair};
  }
  if (p.map && threadIdx.x < 256)
    reinterpret_cast<float*>(shared + kPairTableBytes)[threadIdx.x] = __ldg(p.map + threadIdx.x);
  if (columns == 0)  // sums of a warp without tiles
    for (int i = lane; i < kSumsOfWarp; i += 32) my_sums[i] = 0.0f;
  if (threadIdx.x == 0) barrier_init(&sums_ready, kSmallMWarps);
  __syncthreads();

  const std::int64_t split_size = static_cast<std::int64_t>(p.m) * p.rows;
  // Adds up what the warps along K have for the rows of tiles from `first` on: lanes n and n + 16 share the result of row n.
  auto add_up = [&](int first, int count, int set) {
    const int tile = warp / (8 * kMTiles), m = warp % (8 * kMTiles), n = lane % 16, half = lane / 16;
    for (int row_warp = 0; row_warp < warps_rows; ++row_warp) {
      const int each = (warps_k + 1) / 2, from = half * each, to = min(from + each, warps_k);
      const float* sums = all_sums + (row_warp * warps_k + from) * kSumsOfWarp + set * kSumsOfSet +
                          tile * kSumsOfTile<kMTiles> + m * kSumStride + n;
      float sum = 0.0f;
#pragma unroll
      for (int k = 0; k < kSmallMWarps / 2; ++k)
        if (k < to - from) sum += sums[k * kSumsOfWarp];
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 16);
      const int row = (block_row + row_warp * row_tiles + first + tile) * kTileRows + n;
      if (half || tile >= count || m >= p.m || row >= p.rows) continue;
      if (p.shape.splits == 1)
        finish<Act>(p, p.out, m, row, sum, factor);
      else
        __stcg(p.partial + blockIdx.y * split_size + static_cast<std::int64_t>(m) * p.rows + row, sum);
    }
  };
  int batch = 0;  // of kWaiting rows of tiles
#pragma unroll 1
  for (int r = 0; r < row_tiles; ++r) {
    float sums[kChains][kMTiles][4] = {};
    if (r < rows) {
      const typename Scales::Row row = next_row;
      reader.next_row();
      if (r + 1 < rows) next_row.load(p, reader.unit);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        multiply_tile<Act, Scales, kMTiles, kChains>(p, shared, row, tiles[j], b[j], sums);
        if (r + 1 < rows && j < columns) reader.load(p, j, tiles[j]);
      }
    }
    if (r % kWaiting == 0 && batch > 0) {
      barrier_wait(&sums_ready, (batch - 1) % 2);
      add_up(r - kWaiting, kWaiting, (batch - 1) % 2);
    }
    if (r < rows) {
      float* to = my_sums + batch % 2 * kSumsOfSet + r % kWaiting * kSumsOfTile<kMTiles>;
#pragma unroll
      for (int m = 0; m < kMTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          to[(m * 8 + t * 2 + i % 2) * kSumStride + g + i / 2 * 8] =
              kChains == 2 ? sums[0][m][i] + sums[kChains - 1][m][i] : sums[0][m][i];
    }
    if (r % kWaiting == kWaiting - 1 || r == row_tiles - 1) {
      __syncwarp();
      if (lane == 0) barrier_arrive(&sums_ready);
      ++batch;
    }
  }
  barrier_wait(&sums_ready, (batch - 1) % 2);
  const int first_left = (batch - 1) * kWaiting;
  add_up(first_left, row_tiles - first_left, (batch - 1) % 2);

  if (p.shape.splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(p.counters + blockIdx.x, 1u) == static_cast<unsigned>(p.shape.splits) - 1;
    if (last) p.counters[blockIdx.x] = 0;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  const int first = block_row * kTileRows, results = min(warps_rows * row_tiles * kTileRows, p.rows - first);
  for (int i = static_cast<int>(threadIdx.x); i < results; i += kSmallMThreads) {
    const float* partial = p.partial + first + i;
    float sums[8 * kMTiles] = {};
    for (int s = 0; s < p.shape.splits; ++s)
#pragma unroll
      for (int m = 0; m < 8 * kMTiles; ++m)
        if (m < p.m) sums[m] += __ldcg(partial + s * split_size + static_cast<std::int64_t>(m) * p.rows);
#pragma unroll
    for (int m = 0; m < 8 * kMTiles; ++m)
      if (m < p.m) finish<Act>(p, p.out, m, first + i, sums[m], factor);
  }
}

}  // namespace halfbyte::cuda
