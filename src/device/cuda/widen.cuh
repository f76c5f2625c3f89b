// Loads of stored numbers as float32: one kernel template serves tables of float32, BF16 and FP16.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "formats/bf16.h"
#include "formats/fp16.h"

namespace halfbyte::cuda {

struct StoredF32 {
  using Bits = float;
  __device__ static float widen(float x) { return x; }
};
struct StoredBf16 {
  using Bits = std::uint16_t;
  __device__ static float widen(std::uint16_t x) { return bf16_decode(x); }
};
struct StoredFp16 {
  using Bits = std::uint16_t;
  __device__ static float widen(std::uint16_t x) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
    return value;
  }
};

// Calls launch(Stored...{}) for a table of that type; false for another type.
template <class Launch>
bool with_stored(DType dtype, Launch launch) {
  if (dtype == DType::f32)
    launch(StoredF32{});
  else if (dtype == DType::bf16)
    launch(StoredBf16{});
  else if (dtype == DType::f16)
    launch(StoredFp16{});
  else
    return false;
  return true;
}

}  // namespace halfbyte::cuda
