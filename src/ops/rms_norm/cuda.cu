// RMSNorm: a thread block a row; rows as short as an attention head get one warp.
#include <cuda_runtime_api.h>

#include "device/cuda/reduce.cuh"
#include "ops/rms_norm/cuda.h"

namespace halfbyte::cuda {

namespace {

template <int kThreads>
__global__ void __launch_bounds__(kThreads) norm_rows(const __grid_constant__ RmsNorm p) {
  const float* x = p.x + blockIdx.x * p.x_stride;
  float* out = p.out + blockIdx.x * p.out_stride;
  double sum = 0;
  for (std::int64_t c = threadIdx.x; c < p.columns; c += kThreads) sum += static_cast<double>(x[c]) * x[c];
  sum = block_reduce<kThreads>(sum, Add{});
  const auto mean = static_cast<float>(sum / static_cast<double>(p.columns));
  const float factor = 1.0f / sqrtf(mean + p.eps);
  for (std::int64_t c = threadIdx.x; c < p.columns; c += kThreads) out[c] = x[c] * factor * p.weight[c];
}

}  // namespace

int rms_norm(const RmsNorm& args, Stream stream) {
  const auto rows = static_cast<unsigned>(args.rows);
  if (args.columns <= 256)
    norm_rows<32><<<rows, 32, 0, stream>>>(args);
  else
    norm_rows<256><<<rows, 256, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
