// RMSNorm on a CUDA device, on the caller's stream.
#pragma once

#include "device/cuda/device.h"
#include "ops/rms_norm/op.h"

namespace halfbyte::cuda {

// As rms_norm() of op.h with every pointer on the device. Squares are summed in double, in an order of its own: the mean differs
// from the CPU's where a sum of doubles lies within 1e-15 of a tie of float32. Returns a cudaError_t.
int rms_norm(const RmsNorm& args, Stream stream);

}  // namespace halfbyte::cuda
