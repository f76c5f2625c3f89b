// Changes of basis before rounding on a CUDA device, on the caller's stream.
#pragma once

#include "device/cuda/device.h"
#include "ops/transform_input/op.h"

namespace halfbyte::cuda {

// As transform_input() of op.h with every pointer on the device, bit for bit. A row must fit in shared memory: at most
// kMostChannels. Returns a cudaError_t.
inline constexpr std::int64_t kMostChannels = 56 * 1024;
int transform_input(const TransformInput& args, Stream stream);

}  // namespace halfbyte::cuda
