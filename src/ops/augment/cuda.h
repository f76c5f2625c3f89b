// What rounding lost of chosen columns on a CUDA device: the step of augment() between its two roundings.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"

namespace halfbyte::cuda {

// out[m, columns + j] = x[m, residual[j]] - out[m, residual[j]] for j < residual_count; out [rows, columns + residual_count],
// x [rows, columns], all on the device. Returns a cudaError_t.
struct AppendResidual {
  std::int64_t rows = 0, columns = 0, residual_count = 0;
  const float* x = nullptr;
  const std::int32_t* residual = nullptr;
  float* out = nullptr;
};
int append_residual(const AppendResidual& args, Stream stream);

}  // namespace halfbyte::cuda
