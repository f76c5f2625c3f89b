// A weight matrix on the device as its checkpoint stores it, and its product with activations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "device/cuda/memory.h"
#include "device/cuda/staging.h"
#include "device/cuda/values.h"
#include "formats/quantized_tensor.h"

namespace halfbyte::cuda {

// W [rows, columns]: codes and scales of a format (quantized_tensor.h), the same packed for tensor cores, or plain numbers.
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
  bool is_packed() const { return tiles_.size() > 0; }
  DType dtype() const { return dtype_; }              // of a plain one
  const void* data() const { return bytes_.data(); }  // the same
  std::int64_t bytes() const;                         // on the device

  // Whether the rows of `parts` can follow each other in one matrix: of one format, whose blocks and scales do not run over rows.
  static bool can_join(std::span<const StoredWeight* const> parts);
  static StoredWeight join(std::span<const StoredWeight* const> parts);

  // For multiply_f16(): codes become tiles. False, and nothing is done, where matmul_w4a16 does not take them.
  bool pack();
  // Codes become plain FP16.
  void widen();

  // Floats of scratch that multiply() takes.
  std::int64_t scratch() const { return is_plain() || is_packed() ? 0 : rows_ * columns_; }
  // out [m, rows] (+)= x [m, columns] W^T + bias, in float32; x f32 or f16 with row stride x_stride, bias may be null. Not packed.
  void multiply(const Values& x, std::int64_t m, std::int64_t x_stride, const float* bias, bool accumulate,
                float* scratch, float* out, Stream stream) const;
  // out [m, rows] = x [m, columns] W^T + bias, FP16 all, summed in float32; packed only. workspace: workspace(m) bytes, zero at
  // first and left so.
  void multiply_f16(const void* x, std::int64_t m, const void* bias, void* workspace, void* out,
                    Stream stream) const;
  std::int64_t workspace(std::int64_t m) const;

 private:
  template <typename T>
  static Buffer<T> join_buffers(std::span<const StoredWeight* const> parts, Buffer<T> StoredWeight::*member);
  void decode(MutableValues out, Stream stream) const;

  std::int64_t rows_ = 0, columns_ = 0;
  DType dtype_ = DType::f32;
  std::optional<QuantSpec> spec_;
  Buffer<std::uint8_t> bytes_;  // codes, or plain numbers
  Buffer<std::uint8_t> tiles_;
  Buffer<std::uint8_t> scales8_;
  Buffer<float> scales_, nested_, map_, global_;
  float offset_ = 0.0f, global_scale_ = 1.0f;
};

}  // namespace halfbyte::cuda
