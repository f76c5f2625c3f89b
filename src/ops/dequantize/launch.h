// The seam between host and device code of dequantize: what cuda.cu offers to cuda.cc. Each returns a cudaError_t.
#pragma once

#include "core/dtype.h"
#include "device/cuda/bytes_shapes.h"
#include "device/cuda/device.h"
#include "ops/dequantize/config.h"
#include "ops/dequantize/params.h"

namespace halfbyte::cuda {

int launch_dequantize_flat(const DequantizeParams& params, DType dtype, bool double_quant,
                           const LaunchShape& shape, Stream stream);
int launch_dequantize_rows(const DequantizeParams& params, DType dtype, Stream stream);

// Moves the bytes of a dequantization on the fast path and computes nothing. shape: 0 .. kBytesShapes - 1.
int launch_dequantize_bytes(const DequantizeParams& params, DType dtype, bool double_quant, int shape,
                            Stream stream);

}  // namespace halfbyte::cuda
