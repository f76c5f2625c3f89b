// Asks the CUDA runtime about the device.
#include <cuda_runtime_api.h>

#include "device/cuda/device.h"

namespace halfbyte::cuda {

namespace {
__global__ void empty_kernel() {}
}  // namespace

std::optional<DeviceInfo> device_info() {
  int count = 0, device = 0;
  cudaDeviceProp properties{};
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 || cudaGetDevice(&device) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    cudaGetLastError();  // a failed question must not fail the next call
    return std::nullopt;
  }
  return DeviceInfo{.name = properties.name,
                    .major = properties.major,
                    .minor = properties.minor,
                    .multiprocessors = properties.multiProcessorCount,
                    .memory = static_cast<std::int64_t>(properties.totalGlobalMem),
                    .l2 = properties.l2CacheSize};
}

StatusText status_text(int status) {
  const auto error = static_cast<cudaError_t>(status);
  return {cudaGetErrorName(error), cudaGetErrorString(error), error == cudaErrorMemoryAllocation};
}

bool built() { return true; }

bool available() {
  static const bool answer = [] {
    cudaFuncAttributes attributes{};
    if (!device_info() || cudaFuncGetAttributes(&attributes, empty_kernel) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    return true;
  }();
  return answer;
}

}  // namespace halfbyte::cuda
