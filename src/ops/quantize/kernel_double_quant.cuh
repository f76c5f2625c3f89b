// Device code of double quantization: absmax values in; their mean, 8-bit codes and one scale for 256 of them out.
#pragma once

#include "ops/quantize/cuda_params.h"
#include "ops/quantize/dynamic8_table.h"

namespace halfbyte::cuda {

inline constexpr int kSumThreads = 1024, kEncodeThreads = 256;

struct AbsmaxSum {
  double sum;
  float smallest;  // other than 0; infinite where there is none
};

inline constexpr AbsmaxSum kNothing{0.0, bits_float(kInfBits)};

// What a warp's threads have together, in every one of them.
__device__ __forceinline__ AbsmaxSum sum_in_warp(AbsmaxSum mine) {
  for (int step = 16; step; step /= 2) {
    mine.sum += __shfl_xor_sync(0xFFFFFFFFu, mine.sum, step);
    mine.smallest = fminf(mine.smallest, __shfl_xor_sync(0xFFFFFFFFu, mine.smallest, step));
  }
  return mine;
}

// First half of offset = mean of absmax[blocks]: kSumBlocks thread blocks leave their sums in the workspace.
template <bool kArithmetic = true>
__global__ void __launch_bounds__(kSumThreads) sum_absmax(const __grid_constant__ DoubleQuantParams p) {
  __shared__ AbsmaxSum warps[32];
  static_assert(kSumThreads == 32 * 32, "one warp adds up those of all warps");
  constexpr int kUnroll = 8;
  constexpr std::int64_t kStride = std::int64_t{kSumBlocks} * kSumThreads;
  AbsmaxSum mine = kNothing;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kSumThreads + threadIdx.x; i < p.blocks;
       i += kUnroll * kStride) {
    float x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      x[u] = i + u * kStride < p.blocks ? __ldg(p.absmax + i + u * kStride) : 0.0f;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if constexpr (kArithmetic) {
        mine.sum += static_cast<double>(x[u]);
        mine.smallest = x[u] == 0.0f ? mine.smallest : fminf(mine.smallest, x[u]);
      } else {
        mine.smallest = bits_float(float_bits(mine.smallest) ^ float_bits(x[u]));
      }
    }
  }
  mine = sum_in_warp(mine);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  mine = sum_in_warp(warps[threadIdx.x]);
  if (threadIdx.x == 0) {
    p.sums()[blockIdx.x] = mine.sum;
    p.smallests()[blockIdx.x] = mine.smallest;
  }
}

// What the thread blocks of sum_absmax() have together, in every thread of a warp.
__device__ __forceinline__ AbsmaxSum sum_of_all(const DoubleQuantParams& p) {
  AbsmaxSum mine = kNothing;
#pragma unroll
  for (int i = 0; i < kSumBlocks / 32; ++i) {
    mine.sum += __ldg(p.sums() + 32 * i + threadIdx.x % 32);
    mine.smallest = fminf(mine.smallest, __ldg(p.smallests() + 32 * i + threadIdx.x % 32));
  }
  return sum_in_warp(mine);
}

// The sum from first to last, in thread 0: some milliseconds for each million.
__device__ __noinline__ double sum_in_order(const DoubleQuantParams& p) {
  __shared__ float values[kEncodeThreads];
  double sum = 0.0;
  for (std::int64_t first = 0; first < p.blocks; first += kEncodeThreads) {
    __syncthreads();
    if (first + threadIdx.x < p.blocks) values[threadIdx.x] = __ldg(p.absmax + first + threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0)
      for (std::int64_t i = 0; i < kEncodeThreads && first + i < p.blocks; ++i)
        sum += static_cast<double>(values[i]);
  }
  return sum;
}

__device__ const Dynamic8Table kDynamic8Table = Dynamic8Table::of();

// Eight absmax values of a group; 0 after the last.
__device__ __forceinline__ void load_absmax(const DoubleQuantParams& p, std::int64_t first, bool wide,
                                            float (&x)[8]) {
  if (wide) {
    const auto* at = reinterpret_cast<const float4*>(p.absmax + first);
    const float4 a = __ldg(at), b = __ldg(at + 1);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = first + k < p.blocks ? __ldg(p.absmax + first + k) : 0.0f;
  }
}

// Second half of the offset, then the codes. The offset is meant to be the mean of a sum in double from first to last. Where
// the sums of sum_absmax() are exact, their order does not matter; that is so for the absmax values of BF16 tensors unless
// they differ by more than 2^20 or so, and for float32 ones unless by more than about 2^7. Otherwise every thread block sums
// again in order, all with the same result. A warp encodes a group at a time, a thread eight neighbours: its scale, then
// its codes.
template <bool kArithmetic = true>
__global__ void __launch_bounds__(kEncodeThreads) encode_absmax(const __grid_constant__ DoubleQuantParams p) {
  static_assert(kDynamic8Group == 32 * 8);
  __shared__ Dynamic8Table table;
  __shared__ float mean;
  __shared__ bool exact;
  const std::int64_t groups = (p.blocks + kDynamic8Group - 1) / kDynamic8Group;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * (kEncodeThreads / 32);
  std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * (kEncodeThreads / 32) + threadIdx.x / 32;
  auto first_of = [&](std::int64_t g) { return g * kDynamic8Group + threadIdx.x % 32 * 8; };
  auto is_wide = [&](std::int64_t g) { return p.aligned && (g + 1) * kDynamic8Group <= p.blocks; };
  auto finish_mean = [&](double sum) {
    mean = static_cast<float>(sum / static_cast<double>(p.blocks));
    if (blockIdx.x == 0) *p.offset = mean;
  };
  float x[8];  // on their way while one warp finds the offset and the others fetch the table
  if (group < groups) load_absmax(p, first_of(group), is_wide(group), x);
  if (threadIdx.x < 32) {
    const AbsmaxSum all = sum_of_all(p);
    if (threadIdx.x == 0) {
      // A sum that is not finite stays so in any order.
      exact = !kArithmetic || sum_was_exact(all.sum, all.smallest, p.mantissa_zeros) || !(all.sum < HUGE_VAL);
      finish_mean(all.sum);
    }
  } else {
    constexpr unsigned kPieces = sizeof table / 16, kOthers = kEncodeThreads - 32;
#pragma unroll
    for (unsigned first = 0; first < kPieces; first += kOthers)
      if (const unsigned i = first + threadIdx.x - 32; i < kPieces)
        reinterpret_cast<uint4*>(&table)[i] = __ldg(reinterpret_cast<const uint4*>(&kDynamic8Table) + i);
  }
  __syncthreads();
  if (!exact) {
    const double in_order = sum_in_order(p);
    if (threadIdx.x == 0) finish_mean(in_order);
    __syncthreads();
  }
  const float offset = mean;
  while (group < groups) {
    const std::int64_t first = first_of(group);
    const bool wide = is_wide(group);
    float largest = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      x[k] = wide || first + k < p.blocks ? add_rn(x[k], -offset) : 0.0f;
      largest = fmaxf(largest, abs_value(x[k]));
    }
    if constexpr (kArithmetic) largest = bits_float(__reduce_max_sync(0xFFFFFFFFu, float_bits(largest)));
    if (threadIdx.x % 32 == 0) p.nested_absmax[group] = largest;
    const float factor = largest <= pow2f(-128) ? 0.0f : 1.0f / largest;
    std::uint32_t codes[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) codes[k] = kArithmetic ? table.encode_scaled(x[k], factor) : float_bits(x[k]);
    if (wide) {
      auto four = [&](int k) {
        return __byte_perm(__byte_perm(codes[k], codes[k + 1], 0x0040),
                           __byte_perm(codes[k + 2], codes[k + 3], 0x0040), 0x5410);
      };
      *reinterpret_cast<uint2*>(p.codes + first) = {four(0), four(4)};
    } else {
#pragma unroll
      for (int k = 0; k < 8; ++k)
        if (first + k < p.blocks) p.codes[first + k] = static_cast<std::uint8_t>(codes[k]);
    }
    group += stride;
    if (group < groups) load_absmax(p, first_of(group), is_wide(group), x);
  }
}

}  // namespace halfbyte::cuda
