// Launches the kernel for many activations: one instance for each kind of scales, type, and block of activations.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "ops/matmul_w4a16/dispatch.cuh"
#include "ops/matmul_w4a16/kernel_wide.cuh"

namespace halfbyte::cuda {

namespace {

template <class Act, class Scales, int kM>
void run(const WideParams& params, Stream stream) {
  constexpr int kShared = kWideBytes<Scales, kM>;
  const auto kernel = matmul_wide<Act, Scales, kM>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  const WideShape& shape = params.shape;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.row_blocks), static_cast<unsigned>(shape.m_blocks),
                        static_cast<unsigned>(shape.splits));
  config.blockDim = dim3(kWideThreads<kM>);
  config.dynamicSmemBytes = kShared;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace

int launch_wide(const WideParams& params, W4Scales scales, DType dtype, Stream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(params.m_padded * 8, 256)),
                  static_cast<unsigned>(params.column_tiles));
  if (scales == W4Scales::e4m3_sixteens)
    arrange_activations<true><<<grid, 256, 0, stream>>>(params);
  else
    arrange_activations<false><<<grid, 256, 0, stream>>>(params);
  with_scales(scales, dtype, [&]<class Act, class Scales>() {
    switch (params.shape.activations) {
      case 32:
        return run<Act, Scales, 32>(params, stream);
      case 64:
        return run<Act, Scales, 64>(params, stream);
      case 128:
        return run<Act, Scales, 128>(params, stream);
      default:
        return run<Act, Scales, 256>(params, stream);
    }
  });
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
