// Device code of double quantization: absmax values in; their mean, 8-bit codes and one scale for 256 of them out.
#pragma once

#include "ops/quantize/cuda_params.h"
#include "ops/quantize/dynamic8_table.h"

namespace halfbyte::cuda {

inline constexpr int kMeanThreads = 512;

struct AbsmaxSum {
  double sum;
  float smallest;  // other than 0; infinite where there is none
};

// What a thread block's numbers give together, in every thread of its first warp.
__device__ __forceinline__ AbsmaxSum sum_in_block(AbsmaxSum mine, AbsmaxSum* warps) {
  auto add_up = [&](int width) {
    for (int step = width / 2; step; step /= 2) {
      mine.sum += __shfl_xor_sync(0xFFFFFFFFu, mine.sum, step);
      mine.smallest = fminf(mine.smallest, __shfl_xor_sync(0xFFFFFFFFu, mine.smallest, step));
    }
  };
  add_up(32);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = warps[threadIdx.x % (kMeanThreads / 32)];
  add_up(kMeanThreads / 32);
  return mine;
}

// offset = mean of absmax[blocks], as if summed in double from first to last. Thread blocks sum pieces, and the last one to
// finish adds those up. Where all of these sums are exact, the order does not matter; that is so for the absmax values of
// BF16 tensors unless they differ by more than 2^20 or so, and for float32 ones unless by more than about 2^7. Otherwise a single
// thread sums again in order, which takes some milliseconds for each million.
template <bool kArithmetic = true>
__global__ void __launch_bounds__(kMeanThreads) mean_of_absmax(const __grid_constant__ DoubleQuantParams p) {
  __shared__ AbsmaxSum warps[kMeanThreads / 32];
  __shared__ float in_order[kMeanThreads];
  __shared__ bool last;
  constexpr int kUnroll = 8;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kMeanThreads;
  AbsmaxSum mine{0.0, bits_float(kInfBits)};
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kMeanThreads + threadIdx.x; i < p.blocks;
       i += kUnroll * stride) {
    float x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      x[u] = i + u * stride < p.blocks ? __ldg(p.absmax + i + u * stride) : 0.0f;
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
  auto* sums = reinterpret_cast<double*>(p.workspace);
  auto* smallests = reinterpret_cast<float*>(sums + gridDim.x);
  auto* finished = reinterpret_cast<unsigned*>(smallests + gridDim.x);
  mine = sum_in_block(mine, warps);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = mine.sum;
    smallests[blockIdx.x] = mine.smallest;
    __threadfence();
    last = atomicAdd(finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  mine = {0.0, bits_float(kInfBits)};
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kMeanThreads) {
    mine.sum += __ldcg(sums + i);
    mine.smallest = fminf(mine.smallest, __ldcg(smallests + i));
  }
  mine = sum_in_block(mine, warps);
  // A sum that is not finite stays so in any order.
  if (threadIdx.x == 0)
    last = !kArithmetic || sum_was_exact(mine.sum, mine.smallest, p.mantissa_zeros) || !(mine.sum < HUGE_VAL);
  __syncthreads();
  if (!last) {
    mine.sum = 0.0;
    for (std::int64_t first = 0; first < p.blocks; first += kMeanThreads) {
      __syncthreads();
      if (first + threadIdx.x < p.blocks) in_order[threadIdx.x] = __ldg(p.absmax + first + threadIdx.x);
      __syncthreads();
      if (threadIdx.x == 0)
        for (std::int64_t i = 0; i < kMeanThreads && first + i < p.blocks; ++i)
          mine.sum += static_cast<double>(in_order[i]);
    }
  }
  if (threadIdx.x == 0) *p.offset = static_cast<float>(mine.sum / static_cast<double>(p.blocks));
}

__device__ const Dynamic8Table kDynamic8Table = Dynamic8Table::of();

// A warp a group at a time: its scale, then its codes.
template <bool kArithmetic = true>
__global__ void __launch_bounds__(256) encode_absmax(const __grid_constant__ DoubleQuantParams p) {
  __shared__ Dynamic8Table table;
  const std::int64_t lane = threadIdx.x % 32, groups = (p.blocks + kDynamic8Group - 1) / kDynamic8Group;
  const float offset = __ldg(p.offset);
  for (unsigned i = threadIdx.x; i < sizeof table / 4; i += 256)
    reinterpret_cast<std::uint32_t*>(&table)[i] = reinterpret_cast<const std::uint32_t*>(&kDynamic8Table)[i];
  __syncthreads();
  for (std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * 8 + threadIdx.x / 32; group < groups;
       group += static_cast<std::int64_t>(gridDim.x) * 8) {
    const std::int64_t first = group * kDynamic8Group + lane;
    constexpr int kEach = kDynamic8Group / 32;
    float x[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k)
      x[k] = first + 32 * k < p.blocks ? add_rn(__ldg(p.absmax + first + 32 * k), -offset) : 0.0f;
    float largest = 0.0f;
#pragma unroll
    for (int k = 0; k < kEach; ++k) largest = fmaxf(largest, abs_value(x[k]));
    if (kArithmetic)
      for (int step = 16; step; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
    if (lane == 0) p.nested_absmax[group] = largest;
    const float factor = largest <= pow2f(-128) ? 0.0f : 1.0f / largest;
#pragma unroll
    for (int k = 0; k < kEach; ++k)
      if (first + 32 * k < p.blocks)
        p.codes[first + 32 * k] =
            kArithmetic ? table.encode_scaled(x[k], factor) : static_cast<std::uint8_t>(float_bits(x[k]));
  }
}

}  // namespace halfbyte::cuda
