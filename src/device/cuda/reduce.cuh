// Sums and maxima over a warp and over a thread block, in an order that the number of threads alone decides.
#pragma once

#include <cstdint>

namespace halfbyte::cuda {

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// Every lane gets the result.
template <class T, class Op>
__device__ T warp_reduce(T value, Op op) {
#pragma unroll
  for (int lane = 16; lane; lane /= 2) value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, lane));
  return value;
}

// Every thread of a block of kThreads gets the result. All of them must come here; the barriers let it be called in turn.
template <int kThreads, class T, class Op>
__device__ T block_reduce(T value, Op op) {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024, "whole warps, one lane for each in the second step");
  __shared__ T of_warps[kThreads / 32];
  value = warp_reduce(value, op);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[0];
#pragma unroll
  for (int i = 1; i < kThreads / 32; ++i) value = op(value, of_warps[i]);
  return value;
}

}  // namespace halfbyte::cuda
