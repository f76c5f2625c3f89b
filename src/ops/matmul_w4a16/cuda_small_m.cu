// Launches the kernel for few activations: one instance for each kind of scales, type, and 8 or 16 activations.
#include <cuda_runtime_api.h>

#include "ops/matmul_w4a16/dispatch.cuh"
#include "ops/matmul_w4a16/kernel_small_m.cuh"

namespace halfbyte::cuda {

namespace {

template <class Act, class Scales, int kMTiles>
void run(const SmallMParams& params, Stream stream) {
  const auto kernel = matmul_small_m<Act, Scales, kMTiles>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmallMSharedBytes);
  const dim3 grid(static_cast<unsigned>(params.shape.groups), static_cast<unsigned>(params.shape.splits));
  kernel<<<grid, kSmallMThreads, kSmallMSharedBytes, stream>>>(params);
}

}  // namespace

int launch_small_m(const SmallMParams& params, W4Scales scales, DType dtype, Stream stream) {
  with_scales(scales, dtype, [&]<class Act, class Scales>() {
    params.m <= 8 ? run<Act, Scales, 1>(params, stream) : run<Act, Scales, 2>(params, stream);
  });
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
