// The float32 product in tiles of 128 x 128, eight by eight a thread; for few rows, a warp a column.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "device/cuda/early.cuh"
#include "device/cuda/ptx.cuh"
#include "device/cuda/reduce.cuh"
#include "device/cuda/widen.cuh"
#include "ops/matmul_f32/cuda.h"

namespace halfbyte::cuda {

namespace {

constexpr int kTile = 128, kDepth = 16, kThreads = 256;
constexpr std::int64_t kFewRows = 4;
constexpr int kPadded = kTile + 4;  // rows of a transposed tile start at other banks

// Four numbers along K; beyond the end of the row, zeros. `vectors`: rows begin at multiples of four numbers.
template <class Stored>
__device__ void load_four(const typename Stored::Bits* row, std::int64_t k, std::int64_t end, bool inside,
                          bool vectors, float (&out)[4]) {
  using Bits = typename Stored::Bits;
  struct alignas(4 * sizeof(Bits)) Four {
    Bits at[4];
  };
  if (vectors && inside && k + 4 <= end) {
    const Four four = *reinterpret_cast<const Four*>(row + k);
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = Stored::widen(four.at[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = inside && k + i < end ? Stored::widen(row[k + i]) : 0.0f;
  }
}

// One operand's part of a tile: rows t / 4 and t / 4 + 64 of it, four columns each, transposed on the way to shared memory.
template <class Stored>
struct Side {
  const typename Stored::Bits* rows[2];
  bool inside[2], vectors;
  float held[2][4];

  __device__ Side(const void* base, std::int64_t stride, std::int64_t first, std::int64_t count) {
    vectors = stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(base) % 16 == 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t row = first + threadIdx.x / 4 + 64 * i;
      inside[i] = row < count;
      rows[i] = static_cast<const typename Stored::Bits*>(base) + (inside[i] ? row : 0) * stride;
    }
  }
  __device__ void fetch(std::int64_t k, std::int64_t end) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      load_four<Stored>(rows[i], k + threadIdx.x % 4 * 4, end, inside[i], vectors, held[i]);
  }
  __device__ void put(float (*tile)[kPadded]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) tile[threadIdx.x % 4 * 4 + j][threadIdx.x / 4 + 64 * i] = held[i][j];
  }
};

// Rows 4 y to 4 y + 3 and the same 64 on.
__device__ void read_eight(const float* tile, int y, float (&out)[8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 four = *reinterpret_cast<const float4*>(tile + 64 * half + 4 * y);
    out[4 * half] = four.x;
    out[4 * half + 1] = four.y;
    out[4 * half + 2] = four.z;
    out[4 * half + 3] = four.w;
  }
}

template <class Active, class Stored>
__global__ void __launch_bounds__(kThreads, 2) multiply_tiles(const __grid_constant__ DeviceMatmulF32 p) {
  __shared__ __align__(16) float a_tile[2][kDepth][kPadded];
  __shared__ __align__(16) float w_tile[2][kDepth][kPadded];
  const std::int64_t first_m = std::int64_t{blockIdx.y} * kTile, first_n = std::int64_t{blockIdx.x} * kTile;
  Side<Active> a(p.activation.data, p.activation_stride, first_m, p.m);
  Side<Stored> w(p.weight, p.k, first_n, p.n);
  const int y = threadIdx.x / 16, x = threadIdx.x % 16;
  float sums[8][8] = {};
  a.fetch(0, p.k);
  w.fetch(0, p.k);
  int stage = 0;
  for (std::int64_t k = 0; k < p.k; k += kDepth, stage ^= 1) {
    a.put(a_tile[stage]);
    w.put(w_tile[stage]);
    __syncthreads();  // one a step: the other stage's readers have passed the one before
    if (k + kDepth < p.k) {
      a.fetch(k + kDepth, p.k);
      w.fetch(k + kDepth, p.k);
    }
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float left[8], right[8];
      read_eight(a_tile[stage][d], y, left);
      read_eight(w_tile[stage][d], x, right);
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::int64_t m = first_m + i / 4 * 64 + 4 * y + i % 4;
    if (m >= p.m) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const std::int64_t n = first_n + j / 4 * 64 + 4 * x + j % 4;
      if (n >= p.n) continue;
      float* out = p.out + m * p.out_stride + n;
      *out = sums[i][j] + (p.bias ? p.bias[n] : 0.0f) + (p.accumulate ? *out : 0.0f);
    }
  }
}

// Eight numbers along K as they lie in memory, so that many loads can be under way at once.
template <class Stored>
struct Eight {
  static constexpr int kQuads = static_cast<int>(sizeof(typename Stored::Bits)) / 2;  // of 16 bytes
  uint4 quads[kQuads] = {};

  __device__ void load(const typename Stored::Bits* from, bool constant) {
    const auto* at = reinterpret_cast<const uint4*>(from);
#pragma unroll
    for (int i = 0; i < kQuads; ++i) quads[i] = constant ? load_once(at + i) : at[i];
  }
  __device__ void widen(float (&out)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint4& quad = quads[i * kQuads / 8];
      const int at = i % (8 / kQuads) * kQuads / 2;  // of the quad's words
      const std::uint32_t word = at == 0 ? quad.x : at == 1 ? quad.y : at == 2 ? quad.z : quad.w;
      if constexpr (kQuads == 2)
        out[i] = __uint_as_float(word);
      else
        out[i] = Stored::widen(static_cast<std::uint16_t>(word >> (i % 2 * 16)));
    }
  }
};

// A warp two rows of the weights and a row of activations; kUnroll runs of 256 columns are fetched together, the weights of the
// first of them before the kernel that makes the activations has ended. Vectors: rows are whole runs of eight numbers, aligned.
constexpr int kWarpRows = 2, kUnroll = 4, kRun = 256;
template <class Active, class Stored, bool kVectors>
__global__ void __launch_bounds__(kThreads) multiply_rows(const __grid_constant__ DeviceMatmulF32 p) {
  let_next_kernel_start();
  const std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32 * kWarpRows,
                     m = blockIdx.y;
  if (first >= p.n) return wait_for_kernel_before();
  const typename Stored::Bits* weights[kWarpRows];
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r)
    weights[r] =
        static_cast<const typename Stored::Bits*>(p.weight) + (first + r < p.n ? first + r : first) * p.k;
  const auto* activation =
      static_cast<const typename Active::Bits*>(p.activation.data) + m * p.activation_stride;
  float sums[kWarpRows] = {};
  if constexpr (kVectors) {
    Eight<Stored> right[kUnroll][kWarpRows];
    const auto load_weights = [&](std::int64_t k) {
#pragma unroll
      for (int u = 0; u < kUnroll;
           ++u) {  // beyond the end, the last eight again: a branch would hold the loads apart
        const std::int64_t at = k + u * kRun < p.k ? k + u * kRun : p.k - 8;
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) right[u][r].load(weights[r] + at, true);
      }
    };
    std::int64_t k = threadIdx.x % 32 * 8;
    load_weights(k);
    wait_for_kernel_before();
    while (k < p.k) {
      Eight<Active> left[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        left[u].load(activation + (k + u * kRun < p.k ? k + u * kRun : p.k - 8), false);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const bool counts = k + u * kRun < p.k;
        float a[8], w[8];
        left[u].widen(a);
#pragma unroll
        for (int i = 0; i < 8; ++i) a[i] = counts ? a[i] : 0.0f;
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
          right[u][r].widen(w);
#pragma unroll
          for (int i = 0; i < 8; ++i) sums[r] = fmaf(a[i], w[i], sums[r]);
        }
      }
      k += kUnroll * kRun;
      if (k < p.k) load_weights(k);
    }
  } else {
    wait_for_kernel_before();
    for (std::int64_t k = threadIdx.x % 32; k < p.k; k += 32)
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r)
        sums[r] = fmaf(Active::widen(activation[k]), Stored::widen(weights[r][k]), sums[r]);
  }
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const std::int64_t n = first + r;
    const float sum = warp_reduce(sums[r], Add{});
    if (threadIdx.x % 32 || n >= p.n) continue;
    float* out = p.out + m * p.out_stride + n;
    *out = sum + (p.bias ? p.bias[n] : 0.0f) + (p.accumulate ? *out : 0.0f);
  }
}

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

template <class Active, class Stored>
int launch(const DeviceMatmulF32& args, Stream stream) {
  if (args.m <= kFewRows) {
    const dim3 grid(static_cast<unsigned>(ceil_div(args.n, kThreads / 32 * kWarpRows)),
                    static_cast<unsigned>(args.m));
    const bool vectors = args.k % 8 == 0 && args.activation_stride % 8 == 0 &&
                         is_aligned(args.activation.data) && is_aligned(args.weight);
    return launch_early(vectors ? multiply_rows<Active, Stored, true> : multiply_rows<Active, Stored, false>,
                        grid, kThreads, 0, stream, args);
  }
  const dim3 grid(static_cast<unsigned>(ceil_div(args.n, kTile)),
                  static_cast<unsigned>(ceil_div(args.m, kTile)));
  multiply_tiles<Active, Stored><<<grid, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

int matmul_f32(const DeviceMatmulF32& args, Stream stream) {
  if (args.m == 0 || args.n == 0) return cudaSuccess;
  int status = cudaErrorInvalidValue;  // of a type that is not known
  with_stored(args.dtype, [&](auto stored) {
    status = args.activation.dtype == DType::f16 ? launch<StoredFp16, decltype(stored)>(args, stream)
                                                 : launch<StoredF32, decltype(stored)>(args, stream);
  });
  return status;
}

}  // namespace halfbyte::cuda
