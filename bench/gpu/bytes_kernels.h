// Kernels that move the bytes of a quantization and compute nothing: what memory alone allows. Those of a dequantization are
// in ops/dequantize/launch.h, because halfbyte bench uses them too.
#pragma once

#include "device/cuda/bytes_shapes.h"
#include "ops/quantize/cuda_params.h"

struct CUstream_st;

namespace halfbyte::bench {

// shape: 0 .. kBytesShapes - 1. For nvfp4 in two passes over the values, as the op: workspace [1]. Returns a cudaError_t.
int launch_quantize_bytes(const cuda::QuantizeParams& params, int shape, std::uint32_t* workspace,
                          CUstream_st* stream);

}  // namespace halfbyte::bench
