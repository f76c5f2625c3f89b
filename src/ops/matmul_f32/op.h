// out[M,N] = activation[M,K] x weight[N,K] transposed (+ bias), float32: the product under everything not yet
// in 4 bits.
#pragma once

#include <cstdint>
#include <span>

#include "core/thread_pool.h"

namespace halfbyte {

struct MatmulF32 {
  std::int64_t m = 0, n = 0, k = 0;
  const float* activation = nullptr;  // [M, K], row stride activation_stride
  std::int64_t activation_stride = 0;
  const float* weight = nullptr;  // [N, K], row stride weight_stride
  std::int64_t weight_stride = 0;
  const float* bias = nullptr;  // [N] or null
  float* out = nullptr;         // [M, N], row stride out_stride
  std::int64_t out_stride = 0;
};

// The product in tiles whose size depends on the shape alone, each tile on one thread: the result is the same
// for any number of threads. The tile itself is oneDNN's sgemm.
void matmul_f32(const MatmulF32& args, ThreadPool& pool);

// The same on the calling thread only: for use inside a parallel_for.
void matmul_f32_serial(const MatmulF32& args);

// Plain loops with double accumulation; the measure for the others.
void matmul_f32_reference(const MatmulF32& args);

// One serial product of row-major A[M,K] with B[K,N] (not transposed), out = A B; attention's second product.
void matmul_nn_serial(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                      const float* b, std::int64_t b_stride, float* out, std::int64_t out_stride);

// One serial product of a transposed A, A[K,M] row-major, with B[K,N]: out[M,N] = A^T B; second moments.
void matmul_tn_serial(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                      const float* b, std::int64_t b_stride, float* out, std::int64_t out_stride);

}  // namespace halfbyte
