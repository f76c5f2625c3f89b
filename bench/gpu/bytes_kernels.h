// Kernels that move the bytes of a dequantization or quantization and compute nothing: what memory alone allows. Several
// launch shapes each; the benchmarks hold an op against the fastest of them.
#pragma once

#include "core/dtype.h"
#include "ops/dequantize/params.h"
#include "ops/quantize/cuda_params.h"

struct CUstream_st;

namespace halfbyte::bench {

inline constexpr int kBytesShapes = 4;

// shape: 0 .. kBytesShapes - 1. Contiguous tensors only; dtype as for the op. Each returns a cudaError_t.
int launch_dequantize_bytes(const cuda::DequantizeParams& params, DType dtype, bool double_quant, int shape,
                            CUstream_st* stream);
// For nvfp4 in two passes over the values, as the op: workspace [1].
int launch_quantize_bytes(const cuda::QuantizeParams& params, int shape, std::uint32_t* workspace,
                          CUstream_st* stream);

}  // namespace halfbyte::bench
