// Turns a quantized tensor back into numbers: level times scale in float32, then at most one rounding.
#pragma once

#include "core/thread_pool.h"
#include "formats/quantized_tensor.h"
#include "ops/registry.h"

namespace halfbyte {

// Rows [first, last) of the tensor (rows as in formats/quantized_tensor.h) into out[(last - first) * columns]
// of type f32, bf16 or f16; out may have any alignment. The result does not depend on threads or
// implementation.
void dequantize_rows(const QuantizedTensor& tensor, std::int64_t first, std::int64_t last, DType dtype,
                     std::span<std::byte> out, ThreadPool& pool);

// The whole tensor.
Array<float> dequantize(const QuantizedTensor& tensor, ThreadPool& pool);

// What an implementation is handed: elements [first, last) of the flattened tensor, to out[last - first].
struct Dequantize {
  const QuantizedTensor* tensor = nullptr;
  std::int64_t columns = 0;
  std::int64_t first = 0, last = 0;
  float* out = nullptr;
};

void dequantize_reference(const Dequantize& args);
void dequantize_cpu(const Dequantize& args);

std::span<const KernelRow> dequantize_kernels();

}  // namespace halfbyte
