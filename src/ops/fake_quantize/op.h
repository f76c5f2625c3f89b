// Rounds float32 activations to what a low-precision engine would see: quantize and dequantize in one pass.
#pragma once

#include <optional>

#include "core/thread_pool.h"
#include "formats/formats.h"
#include "ops/registry.h"

namespace halfbyte {

enum class ScaleScope : std::uint8_t { tensor, row };  // which values share nvfp4's global scale

// out[m, k] = dequantize(quantize(x))[m, k], bit for bit, with x as an f32 tensor of M rows and K columns
// (scope row: as M tensors of one row). Formats: nvfp4, mxfp4, mxfp8_e4m3, mxfp8_e5m2, int4 and int8 (one
// scale a row, so per token).
struct FakeQuantize {
  std::int64_t rows = 0, columns = 0;  // M, K
  const float* x = nullptr;            // [M, K], row stride x_stride
  std::int64_t x_stride = 0;
  float* out = nullptr;  // [M, K], row stride out_stride; may be x
  std::int64_t out_stride = 0;
  QuantSpec spec;
  ScaleScope scope = ScaleScope::tensor;
  // nvfp4: a fixed one instead of that of the values, in the convention of its rule (nvfp4.h)
  std::optional<float> global_scale = std::nullopt;
};

// A NaN or an infinity in x is refused with its place; out is then in part overwritten.
void fake_quantize(const FakeQuantize& args, ThreadPool& pool);

// Return false where a value is not finite.
bool fake_quantize_reference(const FakeQuantize& args, ThreadPool& pool);
bool fake_quantize_cpu(const FakeQuantize& args, ThreadPool& pool);

std::span<const KernelRow> fake_quantize_kernels();

}  // namespace halfbyte
