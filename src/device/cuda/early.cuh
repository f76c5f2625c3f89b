// Kernels that start while the one before them on the stream still runs, and wait for it where they first need it: what a launch
// costs is then hidden behind work. From sm_90 on; elsewhere these are ordinary launches.
#pragma once

#include <cuda_runtime_api.h>

#include "device/cuda/device.h"
#include "device/cuda/wgmma.cuh"

namespace halfbyte::cuda {

// For kernels that call let_next_kernel_start() and, every thread of them, wait_for_kernel_before() ahead of all that an earlier
// kernel has written or reads (wgmma.cuh). What was written is read by ordinary loads: those of the read-only path may see it as it was.
// Returns a cudaError_t.
template <class... Params, class... Args>
int launch_early(void (*kernel)(Params...), dim3 grid, int threads, std::size_t shared_bytes, Stream stream,
                 const Args&... args) {
  static const bool early = [] {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
           major >= 9;
  }();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

}  // namespace halfbyte::cuda
