// The activation of the llama MLP and the addition to the residual stream on a CUDA device, on the caller's stream.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"

namespace halfbyte::cuda {

// out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]; every array holds `size` floats on the device, out may be gate. Returns a
// cudaError_t, as the next.
int silu_mul(const float* gate, const float* up, float* out, std::int64_t size, Stream stream);

// x[i] += y[i]
int add(float* x, const float* y, std::int64_t size, Stream stream);

}  // namespace halfbyte::cuda
