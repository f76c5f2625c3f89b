// fused_activation on a CUDA device: one launch on the caller's stream.
#pragma once

#include "device/cuda/device.h"
#include "ops/fused_activation/op.h"

namespace halfbyte::cuda {

// As fused_activation_reference() of op.h with every pointer on the device, bit for bit. codes must be aligned to 8 bytes; rows
// of x, up and residual that all begin at multiples of 16 bytes are read faster. Rows of at most 32768 columns. Allocates
// nothing, waits for nothing; throws bad_input for arguments that make no sense, device where there is none.
void fused_activation(const FusedActivation& args, Stream stream);

}  // namespace halfbyte::cuda
