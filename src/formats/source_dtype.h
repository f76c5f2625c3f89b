// The float types that tensors come in: rounding float32 to one of them, widening their bytes to float32.
#pragma once

#include <cstring>

#include "core/dtype.h"
#include "core/tensor.h"
#include "formats/bf16.h"
#include "formats/fp16.h"
#include "formats/hd.h"

namespace halfbyte {

// x rounded to f32 (as it is), bf16 or f16, to nearest even.
HB_HD constexpr float round_to_dtype(DType dtype, float x) {
  if (dtype == DType::bf16) return round_to_bf16(x);
  if (dtype == DType::f16) return round_to_fp16(x);
  return x;
}

constexpr bool is_source_dtype(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

// Element `index` of unaligned f32, bf16 or f16 bytes; exact.
inline float load_element(DType dtype, const std::byte* bytes, std::int64_t index) {
  if (dtype == DType::bf16) return bf16_decode(load<std::uint16_t>(bytes, index));
  if (dtype == DType::f16) return fp16_decode(load<std::uint16_t>(bytes, index));
  return load<float>(bytes, index);
}

// Writes x, rounded to nearest even, as element `index` of such bytes.
inline void store_element(DType dtype, std::byte* bytes, std::int64_t index, float x) {
  const auto store = [&](auto value) { std::memcpy(bytes + index * sizeof(value), &value, sizeof(value)); };
  if (dtype == DType::bf16)
    store(bf16_encode(x));
  else if (dtype == DType::f16)
    store(fp16_encode(x));
  else
    store(x);
}

}  // namespace halfbyte
