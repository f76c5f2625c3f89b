// RMSNorm on a CUDA device, with the addition to the residual stream that comes before it, on the caller's stream.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"
#include "device/cuda/values.h"

namespace halfbyte::cuda {

// x += addend, where there is one; out = x / sqrt(mean of x^2 + eps) * weight. Every pointer is on the device.
struct AddNorm {
  std::int64_t rows = 0, columns = 0;
  float* x = nullptr;             // [rows, columns]
  Values addend;                  // the same, or null
  const float* weight = nullptr;  // [columns]
  float eps = 0;
  MutableValues out;  // [rows, columns]
};

// In float32 bit for bit what rms_norm() of op.h gives (sum_of_squares.h). Returns a cudaError_t.
int add_norm(const AddNorm& args, Stream stream);

}  // namespace halfbyte::cuda
