// The edges of a product in FP16 on a CUDA device: its input from float32, its output back to float32, a scale beside both.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"
#include "device/cuda/values.h"

namespace halfbyte::cuda {

// A factor of each row, or of all: scale or its inverse (1 where that is null), times `also`. Every pointer here is on the device.
struct RowScale {
  const float* scale = nullptr;  // [1] or with of_rows [rows]
  bool inverse = false, of_rows = false;
  float also = 1.0f;
};

// out[r, c] = x[r, c] * scale in FP16, out dense; x f32 or f16 with row stride x_stride. Beyond its range FP16 becomes infinite.
struct ToFp16 {
  std::int64_t rows = 0, columns = 0;
  Values x;
  std::int64_t x_stride = 0;
  RowScale scale;
  std::uint16_t* out = nullptr;
};
// Returns a cudaError_t, as the next.
int to_fp16(const ToFp16& args, Stream stream);

// out[r, c] = x[r, c] * scale + bias[c]; x FP16, bias may be null. Dense both.
struct FromFp16 {
  std::int64_t rows = 0, columns = 0;
  const std::uint16_t* x = nullptr;
  RowScale scale;
  const float* bias = nullptr;
  float* out = nullptr;
};
int from_fp16(const FromFp16& args, Stream stream);

}  // namespace halfbyte::cuda
