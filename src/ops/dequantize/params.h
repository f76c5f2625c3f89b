// What the dequantize kernels are launched with: device pointers, sizes, and what is the same for all threads.
#pragma once

#include <cstdint>

#include "formats/formats.h"
#include "ops/dequantize/fast_divide.h"

namespace halfbyte::cuda {

// Shapes and meanings as in formats/quantized_tensor.h; every pointer is a device pointer.
struct DequantizeParams {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales8 = nullptr;  // nvfp4, mxfp4, mxfp8: [blocks]; double quantization: [blocks]
  const float* scales = nullptr;          // absmax or scale [blocks]; int8 [rows]
  const float* nested = nullptr;          // double quantization: [groups]
  const float* map = nullptr;             // double quantization: [256]
  const float* global_scale = nullptr;    // nvfp4: [1]
  void* out = nullptr;                    // [elements]
  std::int64_t elements = 0, columns = 0;
  float offset = 0.0f;  // double quantization
  int block_shift = 0;  // log2 of the block size
  int group_shift = 8;  // log2 of the blocks in a group of double quantization
  FastDivide row_of;    // int8: by columns / 4
  Format format = Format::nf4;
  bool global_divides = false;  // nvfp4 under the rule compressed_tensors
};

}  // namespace halfbyte::cuda
