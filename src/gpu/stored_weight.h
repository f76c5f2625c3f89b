// A weight matrix on the device as its checkpoint stores it, and its product with activations.
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "device/cuda/memory.h"
#include "device/cuda/staging.h"
#include "formats/quantized_tensor.h"

namespace halfbyte::cuda {

// W [rows, columns], either codes and scales of a format (quantized_tensor.h) or plain numbers.
class StoredWeight {
 public:
  StoredWeight() = default;
  static StoredWeight quantized(const QuantizedTensor& tensor, Staging& staging);
  // dtype: f32, bf16 or f16.
  static StoredWeight plain(const TensorView& view, Staging& staging);

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  bool empty() const { return rows_ == 0; }
  bool is_plain() const { return !spec_; }
  DType dtype() const { return dtype_; }              // of a plain one
  const void* data() const { return bytes_.data(); }  // the same
  std::int64_t bytes() const;                         // on the device

  // Floats of scratch that multiply() takes.
  std::int64_t scratch() const { return is_plain() ? 0 : rows_ * columns_; }
  // out [m, rows] (+)= x [m, columns] W^T + bias, in float32; x with row stride x_stride, bias may be null.
  void multiply(const float* x, std::int64_t m, std::int64_t x_stride, const float* bias, bool accumulate,
                float* scratch, float* out, Stream stream) const;
  // All values in float32: [rows, columns].
  void decode(float* out, Stream stream) const;

 private:
  std::int64_t rows_ = 0, columns_ = 0;
  DType dtype_ = DType::f32;
  std::optional<QuantSpec> spec_;
  Buffer<std::uint8_t> bytes_;  // codes, or plain numbers
  Buffer<std::uint8_t> scales8_;
  Buffer<float> scales_, nested_, map_, global_;
  float offset_ = 0.0f;
};

}  // namespace halfbyte::cuda
