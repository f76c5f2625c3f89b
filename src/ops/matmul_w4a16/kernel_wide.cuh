// Device code of matmul_w4a16 for more than 16 rows of activations on Hopper: out^T = W A^T by wgmma, the decoded weights in
// registers, the activations in shared memory. Weights are what dequantize() makes of them, rounded to the type of the
// activations; nvfp4's are exact in it without their global scale, which multiplies the sums.
#pragma once

#include "device/cuda/wgmma.cuh"
#include "ops/matmul_w4a16/kernel_w4.cuh"

namespace halfbyte::cuda {

// ---- activations in the order of the weights ----------------------------------------------------------------------------

// activations[m, K] -> arranged[column tile][m_padded][64]: in each tile the columns stand in the order in which the lanes hold
// codes, so that step s of a tile finds at columns 16 s + 2 t, 16 s + 2 t + 1 and 16 s + 8 + 2 t, 16 s + 9 + 2 t what lane t has
// decoded; and the 16-byte chunks of a row are swapped as swizzled_matrix() wants them. A thread a chunk; zeros beyond m and K.
template <bool kSixteens>
__global__ void __launch_bounds__(256) arrange_activations(const __grid_constant__ WideParams p) {
  let_next_kernel_start();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  const int chunk = static_cast<int>(i % 8), step = chunk / 2, half = chunk % 2;
  const std::int64_t m = i / 8;
  const int column_tile = static_cast<int>(blockIdx.y);
  if (m >= p.m_padded) return;
  const int first = kSixteens ? step * 4 + half * 2 : step / 2 * 32 + step % 2 * 4 + half * 2;
  constexpr int kStride = kSixteens ? 16 : 8;
  std::uint32_t words[4] = {};
  if (m < p.m)
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int column = column_tile * kTileColumns + first + kStride * t;
      if (column < p.columns)
        words[t] = __ldg(reinterpret_cast<const std::uint32_t*>(
            static_cast<const std::uint16_t*>(p.activations) + m * p.columns + column));
    }
  auto* to = static_cast<uint4*>(p.arranged) + (column_tile * p.m_padded + m) * 8 +
             (chunk ^ static_cast<int>(m % 8));
  *to = {words[0], words[1], words[2], words[3]};
}

// ---- the product ----------------------------------------------------------------------------------------------------

// One group of four warps copies; pairs of groups multiply, two pairs by turns where a tile's products are short beside its
// decoding.
template <int kM>
inline constexpr int kWidePairs = kM <= 64 ? 2 : 1;
template <int kM>
inline constexpr int kWideThreads = 128 + 256 * kWidePairs<kM>;
inline constexpr int kWideRowTiles = kWideRows / kTileRows;
inline constexpr int kWideTableBytes = 256 * 256, kWideMapBytes = 1024;
inline constexpr int kWideSharedBytes = 225 * 1024;  // dynamic, less what alignment may take

template <class Scales, int kM>
inline constexpr int kWideStageBytes = (kM * 128 + kWideRowTiles * kTileBytes<Scales> + 1023) / 1024 * 1024;
template <class Scales, int kM>
constexpr int wide_stages() {
  const int room = (kWideSharedBytes - kWideTableBytes - kWideMapBytes) / kWideStageBytes<Scales, kM>;
  return room < 8 ? room : 8;
}
template <class Scales, int kM>
inline constexpr int kWideStages = wide_stages<Scales, kM>();
template <class Scales, int kM>
inline constexpr int kWideBytes =
    1024 + kWideTableBytes + kWideMapBytes + kWideStages<Scales, kM>* kWideStageBytes<Scales, kM>;

// Two codes -> two weights: levels of one byte, in the type of the activations where the scale is exact there (nvfp4), else in
// float32. Each lane has its own copy, in rows of 256 bytes.
template <class Scales, int kThreads>
__device__ __forceinline__ void fill_levels(const W4Params& p, char* table) {
  for (int i = static_cast<int>(threadIdx.x); i < 256 * 16; i += kThreads) {
    const unsigned byte = static_cast<unsigned>(i) / 16;
    const unsigned first = p.high_first ? byte >> 4 : byte & 15u,
                   second = p.high_first ? byte & 15u : byte >> 4;
    uint4 value;
    if constexpr (Scales::kInWeights) {
      value.x = value.y = value.z = value.w = p.levels[first] | static_cast<std::uint32_t>(p.levels[second])
                                                                    << 16;
    } else {
      value.x = value.z = float_bits(p.exact_levels[first]);
      value.y = value.w = float_bits(p.exact_levels[second]);
    }
    reinterpret_cast<uint4*>(table)[i] = value;
  }
}

// The left operands of a tile's four steps.
template <class Act, class Scales>
__device__ __forceinline__ void decode_tile(const W4Params& p, const char* table, const char* tile,
                                            const Scales& scales, const typename Scales::Row& row,
                                            std::uint32_t (&a)[4][4]) {
  const unsigned lane = threadIdx.x % 32;
  const uint4 codes = *reinterpret_cast<const uint4*>(tile + lane * 16);
  const std::uint32_t words[2][2] = {{codes.x, codes.y}, {codes.z, codes.w}};  // [row g, row g + 8]
#pragma unroll
  for (int high = 0; high < 2; ++high) {
    if constexpr (Scales::kInWeights) {
      const std::uint32_t scale = __byte_perm(scales.both, 0, high ? 0x4141 : 0x4040) << Act::kScaleShift;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t at = __byte_perm(words[high][i / 4], lane * 4, 0x5504 | i % 4 << 4);
        a[i / 2][i % 2 * 2 + high] =
            Act::multiply(*reinterpret_cast<const std::uint32_t*>(table + at), scale);
      }
    } else {
      const float* map = reinterpret_cast<const float*>(table + kWideTableBytes);
      float scale[Scales::kPerRow];
#pragma unroll
      for (int h = 0; h < Scales::kPerRow; ++h) scale[h] = scales.value(p, map, row, 2 * h + high);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t at = __byte_perm(words[high][i / 4], lane * 8, 0x5504 | i % 4 << 4);
        const float2 levels = *reinterpret_cast<const float2*>(table + at);
        const float by = scale[i / (8 / Scales::kPerRow)];
        a[i / 2][i % 2 * 2 + high] = Act::pack(mul_rn(levels.x, by), mul_rn(levels.y, by));
      }
    }
  }
}

// Grid (row_blocks, m_blocks, splits). Stages go round: [activations of a column tile: kM x 128 bytes][8 tiles of weights].
template <class Act, class Scales, int kM>
__global__ void __launch_bounds__(kWideThreads<kM>, 1) matmul_wide(const __grid_constant__ WideParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ char raw[];
  __shared__ std::uint64_t full[8], empty[8];
  constexpr int kPairs = kWidePairs<kM>;
  constexpr int kStages = kWideStages<Scales, kM>, kStage = kWideStageBytes<Scales, kM>,
                kTile = kTileBytes<Scales>;
  static_assert(kStages >= 2);
  char* table = raw + ((1024 - (shared_address(raw) & 1023u)) & 1023u);
  char* stages = table + kWideTableBytes + kWideMapBytes;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int first_row_tile = static_cast<int>(blockIdx.x) * kWideRowTiles;
  const std::int64_t first_m = static_cast<std::int64_t>(blockIdx.y) * kM;
  const int first_column = static_cast<int>(blockIdx.z) * p.shape.column_tiles;
  const int columns = min(p.shape.column_tiles, p.column_tiles - first_column);

  fill_levels<Scales, kWideThreads<kM>>(p, table);
  if (p.map && threadIdx.x < 256)
    reinterpret_cast<float*>(table + kWideTableBytes)[threadIdx.x] = __ldg(p.map + threadIdx.x);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(&full[s], 4);
      barrier_init(&empty[s], 8);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  if (warp < 4) {  // copies: each warp two tiles of weights and a quarter of the activations
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (lane != 0) return;
    constexpr int kMine = kWideRowTiles / 4, kQuarter = kM * 128 / 4;
    const int tiles = max(0, min(kMine, p.row_tiles - first_row_tile - warp * kMine));
    const std::int64_t next_tile = static_cast<std::int64_t>(p.column_tiles) * kTile;
    const std::uint8_t* weights =
        p.tiles +
        (static_cast<std::int64_t>(first_row_tile + warp * kMine) * p.column_tiles + first_column) * kTile;
    const char* activations =
        static_cast<const char*>(p.arranged) + (first_column * p.m_padded + first_m) * 128 + warp * kQuarter;
    const std::uint32_t first = shared_address(stages) + warp * kQuarter,
                        first_tile = shared_address(stages) + kM * 128 + warp * kMine * kTile;
    auto copy_weights = [&](int i, int s) {
#pragma unroll
      for (int r = 0; r < kMine; ++r)
        if (r < tiles)
          copy_bulk(first_tile + s * kStage + r * kTile,
                    weights + r * next_tile + static_cast<std::int64_t>(i) * kTile, kTile, &full[s]);
    };
    auto copy_activations = [&](int i, int s) {
      copy_bulk(first + s * kStage, activations + i * p.m_padded * 128, kQuarter, &full[s]);
    };
    auto expect = [&](int s) {
      barrier_expect(&full[s], static_cast<std::uint32_t>(kQuarter + tiles * kTile));
    };
    // Few activations: the first weights come while the activations are still being arranged. Many: activations, the larger
    // part, always go first.
    const int ahead = kPairs == 2 ? min(kStages, columns) : 0;
    for (int i = 0; i < ahead; ++i) expect(i), copy_weights(i, i);
    wait_for_kernel_before();
    for (int i = 0; i < ahead; ++i) copy_activations(i, i);
    int s = 0, parity = ahead ? 0 : 1;  // a fresh barrier counts as if its phase of parity 1 were over
    for (int i = ahead; i < columns; ++i) {
      barrier_wait(&empty[s], parity);
      expect(s);
      copy_activations(i, s);
      copy_weights(i, s);
      if (++s == kStages) s = 0, parity ^= 1;
    }
    return;
  }

  // 128 x 40 and 256 x 232 or 512 x 104 registers: no more than the launch gave, 384 x 168 or 640 x 96.
  if constexpr (kPairs == 1)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 104;");
  const int pair = (warp - 4) / 8, tile = (warp - 4) % 8, g = lane / 4, t = lane % 4;
  float sums[kM / 2];
#pragma unroll
  for (float& x : sums) x = 0.0f;
  const unsigned units = static_cast<unsigned>(p.columns / 32);
  const unsigned unit = static_cast<unsigned>((first_row_tile + tile) * kTileRows + g) * units;
  std::uint32_t a[4][4], b[4][4];  // left operands of two tiles in turn
  auto decode = [&](int i, std::uint32_t(&operands)[4][4]) {
    const char* tile_at = stages + i % kStages * kStage + kM * 128 + tile * kTile;
    barrier_wait(&full[i % kStages], i / kStages % 2);
    Scales scales;
    typename Scales::Row row{};
    const unsigned at = unit + static_cast<unsigned>(first_column + i) * 2;
    scales.template load<FromShared>(p, reinterpret_cast<const std::uint8_t*>(tile_at) + kTileCodeBytes, at);
    row.load(p, at);
    decode_tile<Act, Scales>(p, table, tile_at, scales, row, operands);
  };
  // Starts the products of tile i, decodes the next tile meanwhile, and waits.
  auto multiply = [&](int i, const std::uint32_t(&operands)[4][4], std::uint32_t(&next)[4][4]) {
    const std::uint64_t matrix = swizzled_matrix(shared_address(stages + i % kStages * kStage));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<Act::kBf16>(sums, operands[k], matrix + 2 * k);
    wgmma_commit();
    if (i + kPairs < columns) decode(i + kPairs, next);
    wgmma_wait<0>();
    __syncwarp();
    if (lane == 0) barrier_arrive(&empty[i % kStages]);
  };
  if (pair < columns) decode(pair, a);
  for (int i = pair; i < columns; i += 2 * kPairs) {
    multiply(i, a, b);
    if (i + kPairs < columns) multiply(i + kPairs, b, a);
  }
  if constexpr (kPairs == 2) {  // the second pair's sums go to the first
    auto* other = reinterpret_cast<float*>(stages) + (threadIdx.x - 128) % 256;
    static_assert(kM / 2 * 256 * 4 <= kStages * kStage);
    asm volatile("bar.sync 2, 512;" ::: "memory");
    if (pair == 1)
#pragma unroll
      for (int i = 0; i < kM / 2; ++i) other[i * 256] = sums[i];
    asm volatile("bar.sync 2, 512;" ::: "memory");
    if (pair == 1) return;
#pragma unroll
    for (int i = 0; i < kM / 2; ++i) sums[i] += other[i * 256];
  }

  const float factor = global_factor(p);
  const int first_row = first_row_tile * kTileRows, rows = min(kWideRows, p.rows - first_row);
  const int n = tile * kTileRows + g, thread = static_cast<int>(threadIdx.x) - 128;
  // 256 threads are left.
  auto wait_for_all = [] { asm volatile("bar.sync 1, 256;" ::: "memory"); };
  if (p.shape.splits == 1) {
    // By way of shared memory, [activation][128 rows + 8], so that rows of results are written in runs.
    constexpr int kStride = kWideRows + 8;
    auto* staged = reinterpret_cast<std::uint16_t*>(stages);
    static_assert(kM * kStride * 2 <= kStages * kStage);
    wait_for_all();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = n + i / 2 * 8;
      if (row < rows)
#pragma unroll
        for (int j = 0; j < kM / 8; ++j)
          staged[(8 * j + 2 * t + i % 2) * kStride + row] =
              result<Act>(p, first_row + row, sums[4 * j + i], factor);
    }
    wait_for_all();
    for (int i = thread; i < kM * kWideRows / 8; i += 256) {
      const int m = i / (kWideRows / 8), row = i % (kWideRows / 8) * 8;
      if (first_m + m >= p.m) break;
      const std::uint16_t* from = staged + m * kStride + row;
      std::uint16_t* to = static_cast<std::uint16_t*>(p.out) + (first_m + m) * p.rows + first_row + row;
      if (p.rows % 8 == 0) {
        if (row < rows) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
        for (int k = 0; k < 8 && row + k < rows; ++k) to[k] = from[k];
      }
    }
    return;
  }
  const std::int64_t split_size = p.m * p.rows;
#pragma unroll
  for (int j = 0; j < kM / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t m = first_m + 8 * j + 2 * t + i % 2;
      const int row = n + i / 2 * 8;
      if (m < p.m && row < rows)
        __stcg(p.partial + blockIdx.z * split_size + m * p.rows + first_row + row, sums[4 * j + i]);
    }
  // The splits of a block run at the same time: wide_shape() makes no more blocks than there are multiprocessors. Each waits for
  // the sums of all and adds up its share of the activations, 16 in turn.
  const auto splits = static_cast<unsigned>(p.shape.splits);
  unsigned* counter = p.counters + blockIdx.y * gridDim.x + blockIdx.x;
  __threadfence();
  wait_for_all();
  if (thread == 0) {
    atomicAdd(counter, 1u);
    while (*static_cast<volatile unsigned*>(counter) < splits) {
    }
    __threadfence();
  }
  wait_for_all();
  const int row = thread % kWideRows;
  for (int m = static_cast<int>(blockIdx.z) * 16 + thread / kWideRows; m < kM && first_m + m < p.m;
       m += 16 * p.shape.splits) {
    if (row >= rows) break;
    const float* partial = p.partial + (first_m + m) * p.rows + first_row + row;
    float sum[8] = {};
#pragma unroll 2
    for (int s = 0; s < p.shape.splits; ++s)
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (first_m + m + 2 * i < p.m)
          sum[i] += __ldcg(partial + s * split_size + 2 * i * static_cast<std::int64_t>(p.rows));
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (first_m + m + 2 * i < p.m)
        finish<Act>(p, p.out, first_m + m + 2 * i, first_row + row, sum[i], factor);
  }
  wait_for_all();
  if (thread == 0 && atomicAdd(counter, 1u) == 2 * splits - 1) *counter = 0;
#else
  __trap();  // never launched: takes_wide() asks for Hopper, and builds for it are for sm_90a
#endif
}

}  // namespace halfbyte::cuda
