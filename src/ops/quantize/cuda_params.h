// What the quantize kernels are launched with: device pointers, sizes, and what is the same for all threads.
#pragma once

#include <cstdint>

#include "formats/formats.h"

namespace halfbyte::cuda {

// Shapes and meanings as in formats/quantized_tensor.h; every pointer is a device pointer.
struct QuantizeParams {
  const void* values = nullptr;  // [rows, columns]
  std::uint8_t* codes = nullptr;
  std::uint8_t* scales8 = nullptr;      // nvfp4, mxfp4, mxfp8
  float* scales = nullptr;              // nf4, fp4: absmax; int4, int8: scale
  const float* global_scale = nullptr;  // nvfp4
  int* not_finite = nullptr;            // becomes 1 where a block holds a NaN or an infinity; may be null
  std::int64_t elements = 0, columns = 0;
  std::int64_t first_block = 0, blocks = 0;  // blocks kernel: of the tensor
  std::int64_t block = 0;                    // elements
  int block_shift = 0;
  Format format = Format::nf4;
  DType source = DType::bf16;
  GlobalScaleRule global_rule = GlobalScaleRule::pow2;
  MxScaleRule mx_rule = MxScaleRule::floor;
  bool four_six = false;
};

}  // namespace halfbyte::cuda
