// Rotates new queries and keys and fills the cache: a thread block a row.
#include <cuda_runtime_api.h>

#include "ops/rope/cuda.h"

namespace halfbyte::cuda {

namespace {

__device__ void turn(const float* from, float* to, std::int64_t pair, std::int64_t half, const float* cosines,
                     const float* sines) {
  const std::int64_t i = pair % half, low = pair / half * 2 * half + i;
  const float a = from[low], b = from[low + half];
  to[low] = a * cosines[i] - b * sines[i];
  to[low + half] = b * cosines[i] + a * sines[i];
}

__global__ void __launch_bounds__(256) rope_append_rows(const __grid_constant__ RopeAppend p) {
  const std::int64_t row = blockIdx.x, position = *p.first_position + row;
  const float *cosines = p.cosines + position * p.half, *sines = p.sines + position * p.half;
  const std::int64_t q_pairs = p.heads * p.half, kv_pairs = p.kv_heads * p.half;
  float* q = p.q + row * 2 * q_pairs;
  const float *k = p.k + row * 2 * kv_pairs, *v = p.v + row * 2 * kv_pairs;
  float *keys = p.keys + position * 2 * kv_pairs, *values = p.values + position * 2 * kv_pairs;
  for (std::int64_t i = threadIdx.x; i < q_pairs; i += 256) turn(q, q, i, p.half, cosines, sines);
  for (std::int64_t i = threadIdx.x; i < kv_pairs; i += 256) turn(k, keys, i, p.half, cosines, sines);
  for (std::int64_t i = threadIdx.x; i < 2 * kv_pairs; i += 256) values[i] = v[i];
}

}  // namespace

int rope_append(const RopeAppend& args, Stream stream) {
  rope_append_rows<<<static_cast<unsigned>(args.rows), 256, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
