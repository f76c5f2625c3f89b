// The seam between host and device code of quantize: what cuda.cu offers to cuda.cc. Each returns a cudaError_t.
#pragma once

#include "device/cuda/device.h"
#include "ops/quantize/cuda_params.h"

namespace halfbyte::cuda {

int launch_quantize_flat(const QuantizeParams& params, Stream stream);    // whole blocks of 16 to 4096
int launch_quantize_int8(const QuantizeParams& params, Stream stream);    // rows of a multiple of 8
int launch_quantize_blocks(const QuantizeParams& params, Stream stream);  // anything
// workspace [1]. Writes global_scale [1].
int launch_global_scale(const QuantizeParams& params, std::uint32_t* workspace, float* global_scale,
                        Stream stream);
// Mean, then codes. Without arithmetic it moves the same bytes, for the benchmarks.
int launch_double_quant(const DoubleQuantParams& params, bool arithmetic, Stream stream);

}  // namespace halfbyte::cuda
