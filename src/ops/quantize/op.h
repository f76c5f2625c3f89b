// Quantizes a tensor to a format: per block a scale from the largest magnitude, per value the nearest code
// (round to nearest; the exact rules are on the card of each format in src/formats).
#pragma once

#include <optional>
#include <string_view>

#include "core/thread_pool.h"
#include "formats/quantized_tensor.h"
#include "ops/registry.h"

namespace halfbyte {

struct QuantizeOptions {
  std::string_view name = "tensor";  // stands in error messages
  // nvfp4: instead of the tensor's own, in the convention of its rule (nvfp4.h)
  std::optional<float> global_scale = std::nullopt;
};

// values: f32, bf16 or f16, of any shape and alignment. A NaN or an infinity is refused with its place (bf16
// takes them). The bytes are the same for any number of threads, any instruction set and any implementation.
QuantizedTensor quantize(const TensorView& values, const QuantSpec& spec, ThreadPool& pool,
                         const QuantizeOptions& options = {});

// Largest magnitude of a tensor; NaN or Inf where it holds one.
float tensor_absmax(const TensorView& values, ThreadPool& pool);

// What an implementation is handed. out has its arrays and, for nvfp4, its global scale; for nf4 and fp4 it
// fills out->scales with absmax, one a block, also under double quantization.
struct Quantize {
  TensorView values;
  Extent extent;
  QuantizedTensor* out = nullptr;
  ThreadPool* pool = nullptr;
};

// Return false where a value is not finite; the codes are then worthless.
bool quantize_reference(const Quantize& args);
bool quantize_cpu(const Quantize& args);

std::span<const KernelRow> quantize_kernels();

}  // namespace halfbyte
