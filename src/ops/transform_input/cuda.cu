// Scales, rotates and gathers: a thread block a row, which lies in shared memory meanwhile.
#include <cuda_runtime_api.h>

#include <cmath>

#include "ops/transform_input/cuda.h"

namespace halfbyte::cuda {

namespace {

__global__ void __launch_bounds__(256)
    transform_rows(const __grid_constant__ TransformInput p, float hadamard_factor) {
  extern __shared__ float row[];
  const float* x = p.x + blockIdx.x * p.channels;
  for (std::int64_t k = threadIdx.x; k < p.channels; k += 256) {
    float value = x[k];
    if (p.scale) value = p.direction == ScaleDirection::divide ? value / p.scale[k] : value * p.scale[k];
    row[k] = value;
  }
  for (std::int64_t half = 1; half < p.hadamard; half *= 2) {
    __syncthreads();
    for (std::int64_t pair = threadIdx.x; pair < p.channels / 2; pair += 256) {
      const std::int64_t i = pair / half * 2 * half + pair % half;
      const float a = row[i], b = row[i + half];
      row[i] = a + b;
      row[i + half] = a - b;
    }
  }
  __syncthreads();
  float* out = p.out + blockIdx.x * p.width;
  for (std::int64_t j = threadIdx.x; j < p.width; j += 256) {
    const std::int64_t from = p.columns ? p.columns[j] : j;
    const float value = from < 0 ? 0.0f : row[from];
    out[j] = p.hadamard > 1 && from >= 0 ? value * hadamard_factor : value;
  }
}

}  // namespace

int transform_input(const TransformInput& args, Stream stream) {
  if (args.rows == 0) return cudaSuccess;
  const auto bytes = static_cast<int>(args.channels * static_cast<std::int64_t>(sizeof(float)));
  if (bytes > 48 * 1024) {
    const cudaError_t status = cudaFuncSetAttribute(reinterpret_cast<const void*>(transform_rows),
                                                    cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status != cudaSuccess) return status;
  }
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.hadamard)));
  transform_rows<<<static_cast<unsigned>(args.rows), 256, static_cast<std::size_t>(bytes), stream>>>(args,
                                                                                                     factor);
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
