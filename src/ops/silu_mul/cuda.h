// The activation of the llama MLP on a CUDA device, on the caller's stream.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"
#include "device/cuda/values.h"

namespace halfbyte::cuda {

// out[r, i] = gate / (1 + exp(-gate)) * up of row r, computed in float32. Every pointer is on the device.
struct DeviceSiluMul {
  std::int64_t rows = 0, columns = 0;
  Values gate, up;          // [rows, columns] each
  std::int64_t stride = 0;  // of rows of both
  MutableValues out;        // [rows, columns], dense; may be gate where that is dense and of its type
};

// Returns a cudaError_t.
int silu_mul(const DeviceSiluMul& args, Stream stream);

}  // namespace halfbyte::cuda
