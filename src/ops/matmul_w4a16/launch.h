// The seam between host and device code of matmul_w4a16: what cuda.cu offers to cuda.cc. Each returns a cudaError_t.
#pragma once

#include "core/dtype.h"
#include "device/cuda/device.h"
#include "ops/matmul_w4a16/params.h"

namespace halfbyte::cuda {

// What a tile's scales are, each with its own kernels.
enum class W4Scales : std::uint8_t {
  e4m3_sixteens,  // nvfp4
  e8m0_halves,    // mxfp4
  f32,            // nf4, fp4, int4: one in a row of a tile, or two
  f32_halves,
  nested_rows,    // nf4, fp4 with double quantization: 256 columns of a row in one group of absmax values,
  nested,         // or perhaps not,
  nested_halves,  // and two blocks in a row of a tile
};

int launch_pack_w4(const PackW4Params& params, Stream stream);
int launch_wide(const WideParams& params, W4Scales scales, DType dtype, Stream stream);
int launch_small_m(const SmallMParams& params, W4Scales scales, DType dtype, Stream stream);

}  // namespace halfbyte::cuda
