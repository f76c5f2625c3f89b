// Launches fused_activation: instances for forms and modes.
#include <cuda_runtime_api.h>

#include "ops/fused_activation/kernel_fused.cuh"

namespace halfbyte::cuda {

namespace {

template <int kForm, FusedMode kMode, bool kStaged>
int launch_kernel(const FusedParams& p, Stream stream) {
  const auto kernel = fused_rows<kForm, kMode, kStaged>;
  int device = 0, multiprocessors = 0, major = 0, blocks = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  std::int64_t bytes = 0;
  if (kMode != FusedMode::general && major >= 9)  // the rows that are copied ahead, x and what meets it
    bytes += 2 * p.args.columns * (p.args.form == ActivationForm::silu_mul || p.args.residual ? 2 : 1);
  if (p.stage) {  // Shared
    const std::int64_t most = p.args.columns > p.args.width ? p.args.columns : p.args.width;
    bytes += (most + 15) / 16 * 64 + p.args.width / 2 + p.args.width / 4;
  }
  if (bytes > 47 * 1024) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (status != cudaSuccess) return status;
  }
  const cudaError_t status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, p.threads,
                                                                           static_cast<std::size_t>(bytes));
  if (status != cudaSuccess) return status;
  const std::int64_t resident = std::int64_t{blocks} * multiprocessors;
  const auto grid = static_cast<unsigned>(p.args.rows < resident ? p.args.rows : resident);
  kernel<<<grid, static_cast<unsigned>(p.threads), static_cast<std::size_t>(bytes), stream>>>(p);
  return cudaGetLastError();
}

template <int kForm, FusedMode kMode>
int launch(const FusedParams& p, Stream stream) {
  if constexpr (kMode != FusedMode::general)
    if (!p.stage) return launch_kernel<kForm, kMode, false>(p, stream);
  return launch_kernel<kForm, kMode, true>(p, stream);
}

template <FusedMode kMode>
int launch_mode(const FusedParams& p, Stream stream) {
  switch (p.args.form) {
    case ActivationForm::plain:
      return launch<static_cast<int>(ActivationForm::plain), kMode>(p, stream);
    case ActivationForm::norm:
      return launch<static_cast<int>(ActivationForm::norm), kMode>(p, stream);
    case ActivationForm::silu_mul:
      break;
  }
  return launch<static_cast<int>(ActivationForm::silu_mul), kMode>(p, stream);
}

}  // namespace

int launch_fused_activation(const FusedParams& params, Stream stream) {
  switch (params.mode) {
    case FusedMode::plain:
      return launch_mode<FusedMode::plain>(params, stream);
    case FusedMode::search:
      return launch_mode<FusedMode::search>(params, stream);
    case FusedMode::general:
      break;
  }
  return launch<-1, FusedMode::general>(params, stream);
}

}  // namespace halfbyte::cuda
