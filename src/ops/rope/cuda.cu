// Rotates new queries and keys and fills the cache: a thread block a row and a head of any of the three.
#include <cuda_runtime_api.h>

#include "device/cuda/values.cuh"
#include "ops/rms_norm/sum_of_squares.h"
#include "ops/rope/cuda.h"

namespace halfbyte::cuda {

namespace {

constexpr int kThreads = 128;
static_assert(kLargestTurnedHead == kSumGroup, "the squares of a head are one group: a warp sums them");

// What RMSNorm multiplies the head by; every thread of the block gets it. In the order of sum_of_squares.h.
__device__ float head_factor(const Values& values, std::int64_t from, std::int64_t dim, float eps) {
  __shared__ float factor;
  if (threadIdx.x < kSumLanes) {
    float sixteen[kSumSixteen];
#pragma unroll
    for (int i = 0; i < kSumSixteen; ++i) {
      const std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * kSumSixteen + i;
      sixteen[i] = at < dim ? value_at(values, from + at) : 0.0f;
    }
    double sum = sum_of_sixteen_squares(sixteen);
#pragma unroll
    for (int half = kSumLanes / 2; half; half /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, half);
    if (threadIdx.x == 0) factor = rms_factor(sum, dim, eps);
  }
  __syncthreads();
  return factor;
}

__global__ void __launch_bounds__(kThreads) rope_append_heads(const __grid_constant__ RopeAppend p) {
  const std::int64_t row = blockIdx.x, position = *p.first_position + row, dim = 2 * p.half;
  const auto head = static_cast<std::int64_t>(blockIdx.y);
  const bool is_q = head < p.heads, is_k = !is_q && head < p.heads + p.kv_heads;
  const std::int64_t own = is_q ? head : is_k ? head - p.heads : head - p.heads - p.kv_heads;
  const StridedRows& source = is_q ? p.q : is_k ? p.k : p.v;
  const std::int64_t from = row * source.stride + own * dim;
  float* to = is_q ? p.turned + (row * p.heads + own) * dim
                   : (is_k ? p.keys : p.values) + (position * p.kv_heads + own) * dim;
  if (!is_q && !is_k) {
    for (std::int64_t i = threadIdx.x; i < dim; i += kThreads) to[i] = value_at(source.values, from + i);
    return;
  }
  const float* norm = is_q ? p.q_norm : p.k_norm;
  const float factor = norm ? head_factor(source.values, from, dim, p.eps) : 1.0f;
  const auto read = [&](std::int64_t i) {
    const float value = value_at(source.values, from + i);
    return norm ? value * factor * norm[i] : value;
  };
  for (std::int64_t i = threadIdx.x; i < p.half; i += kThreads) {
    const float cosine = p.cosines[position * p.half + i], sine = p.sines[position * p.half + i];
    const float a = read(i), b = read(i + p.half);
    to[i] = a * cosine - b * sine;
    to[i + p.half] = b * cosine + a * sine;
  }
}

}  // namespace

int rope_append(const RopeAppend& args, Stream stream) {
  if (args.rows == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(args.rows), static_cast<unsigned>(args.heads + 2 * args.kv_heads));
  rope_append_heads<<<grid, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
