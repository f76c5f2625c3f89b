// Rounding of activations on a CUDA device, bit for bit as fake_quantize() of op.h: raw device pointers, on the caller's stream.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"
#include "formats/formats.h"

namespace halfbyte::cuda {

// Each of these returns a cudaError_t and leaves checks of the spec to the caller.

// nvfp4: the global scale of all values, or one a row. x [rows, columns] with row stride x_stride. absmax: [rows] of workspace
// for a tensor's, unused for rows'.
struct FindGlobalScale {
  std::int64_t rows = 0, columns = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  GlobalScaleRule rule = GlobalScaleRule::pow2;
  bool of_rows = false;
  float* absmax = nullptr;
  float* global_scale = nullptr;  // [1] or [rows]
};
int find_global_scale(const FindGlobalScale& args, Stream stream);

// to[i] = value
int fill(float* to, float value, std::int64_t size, Stream stream);

struct DeviceFakeQuantize {
  std::int64_t rows = 0, columns = 0;  // M, K
  const float* x = nullptr;            // [M, K], row stride x_stride
  std::int64_t x_stride = 0;
  float* out = nullptr;  // [M, K], row stride out_stride; may be x
  std::int64_t out_stride = 0;
  QuantSpec spec;
  const float* global_scale = nullptr;  // nvfp4: [1], or with of_rows [M]
  bool of_rows = false;
  int* not_finite = nullptr;  // [1], becomes 1 where x holds a NaN or an infinity; out is then worthless
};
int fake_quantize(const DeviceFakeQuantize& args, Stream stream);

// Adds to *count how many of the values of x [rows, columns] lie beyond limit in magnitude.
int count_beyond(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t x_stride, float limit,
                 unsigned long long* count, Stream stream);

// *not_finite becomes 1 where x, numbers of f32, bf16 or f16, holds a NaN or an infinity.
int find_not_finite(const void* x, DType dtype, std::int64_t size, int* not_finite, Stream stream);

}  // namespace halfbyte::cuda
