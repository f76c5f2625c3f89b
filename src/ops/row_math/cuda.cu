// Log-probabilities, divergences and the most likely token of rows of logits.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "device/cuda/reduce.cuh"
#include "ops/row_math/cuda.h"

namespace halfbyte::cuda {

namespace {

constexpr int kThreads = 512;

struct Largest {
  float value;
  std::int32_t at;
};

// The largest of n values with its place, the first of equals: every thread gets it.
__device__ Largest row_largest(const float* x, std::int64_t n) {
  Largest best{-INFINITY, 0x7FFFFFFF};
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
    if (x[i] > best.value || best.at == 0x7FFFFFFF) best = {x[i], static_cast<std::int32_t>(i)};
  const float value = block_reduce<kThreads>(best.value, Larger{});
  const int mine = best.value == value ? -best.at : -0x7FFFFFFF;
  return {value, -block_reduce<kThreads>(mine, Larger{})};
}

__device__ double row_log_sum_exp(const float* x, std::int64_t n, float largest) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) sum += static_cast<double>(expf(x[i] - largest));
  return static_cast<double>(largest) + log(block_reduce<kThreads>(sum, Add{}));
}

__global__ void __launch_bounds__(kThreads) score(const __grid_constant__ ScoreRows p) {
  const std::int64_t row = blockIdx.x, n = p.vocab;
  const float* q = p.logits + row * n;
  const Largest q_largest = row_largest(q, n);
  const double q_lse = row_log_sum_exp(q, n, q_largest.value);
  TokenScore result{.nll = q_lse - static_cast<double>(q[p.targets[row]]), .kl = 0, .agreed = 0};
  if (p.reference) {
    const float* reference = p.reference + row * n;
    const Largest p_largest = row_largest(reference, n);
    const double p_lse = row_log_sum_exp(reference, n, p_largest.value);
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
      const double log_p = static_cast<double>(reference[i]) - p_lse,
                   log_q = static_cast<double>(q[i]) - q_lse;
      sum += static_cast<double>(expf(static_cast<float>(log_p))) * (log_p - log_q);
    }
    result.kl = block_reduce<kThreads>(sum, Add{});
    result.agreed = p_largest.at == q_largest.at ? 1 : 0;
  }
  if (threadIdx.x == 0) p.scores[row] = result;
}

// Greater for greater floats, and of equal ones for the lower index.
__device__ unsigned long long largest_key(float value, std::int64_t index) {
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(rising) << 32 | (0x7FFFFFFFu - static_cast<std::uint32_t>(index));
}

constexpr int kFewThreads = 256, kEach = 4;
__global__ void __launch_bounds__(kFewThreads)
    largest_of(const float* values, std::int64_t count, unsigned long long* key) {
  unsigned long long best = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t at = (std::int64_t{blockIdx.x} * kEach + i) * kFewThreads + threadIdx.x;
    if (at < count) best = Larger{}(best, largest_key(values[at], at));
  }
  best = block_reduce<kFewThreads>(best, Larger{});
  if (threadIdx.x == 0) atomicMax(key, best);
}

}  // namespace

int score_rows(const ScoreRows& args, Stream stream) {
  if (args.rows == 0) return cudaSuccess;
  score<<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

int find_largest(const float* values, std::int64_t count, unsigned long long* key, Stream stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(count, kFewThreads * kEach));
  largest_of<<<blocks, kFewThreads, 0, stream>>>(values, count, key);
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
