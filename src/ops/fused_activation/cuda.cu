// Launches fused_activation: instances for forms, sixteens a thread and modes.
#include <cuda_runtime_api.h>

#include "ops/fused_activation/kernel_fused.cuh"

namespace halfbyte::cuda {

namespace {

template <int kForm, int kSixteens, FusedMode kMode>
int launch(const FusedParams& p, Stream stream) {
  const auto kernel = fused_rows<kForm, kSixteens, kMode>;
  std::int64_t bytes = 0;  // of Shared
  if (p.stage) {
    const std::int64_t most = p.args.columns > p.args.width ? p.args.columns : p.args.width;
    bytes = (most + 15) / 16 * 64 + p.args.width / 2 + p.args.width / 4;
  }
  if (bytes > 47 * 1024) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (status != cudaSuccess) return status;
  }
  kernel<<<static_cast<unsigned>(p.args.rows), static_cast<unsigned>(p.threads),
           static_cast<std::size_t>(bytes), stream>>>(p);
  return cudaGetLastError();
}

template <int kForm, FusedMode kMode>
int launch_form(const FusedParams& p, Stream stream) {
  return p.sixteens == 1 ? launch<kForm, 1, kMode>(p, stream) : launch<kForm, 2, kMode>(p, stream);
}

template <FusedMode kMode>
int launch_mode(const FusedParams& p, Stream stream) {
  switch (p.args.form) {
    case ActivationForm::plain:
      return launch_form<static_cast<int>(ActivationForm::plain), kMode>(p, stream);
    case ActivationForm::norm:
      return launch_form<static_cast<int>(ActivationForm::norm), kMode>(p, stream);
    case ActivationForm::silu_mul:
      break;
  }
  return launch_form<static_cast<int>(ActivationForm::silu_mul), kMode>(p, stream);
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
  return launch<-1, kMostSixteens, FusedMode::general>(params, stream);
}

}  // namespace halfbyte::cuda
