// Reads and writes of arrays whose type is known at run time alone: every thread of a launch takes the same branch.
#pragma once

#include <cstdint>

#include "device/cuda/ptx.cuh"
#include "device/cuda/values.h"
#include "device/cuda/widen.cuh"

namespace halfbyte::cuda {

__device__ __forceinline__ float value_at(const Values& values, std::int64_t i) {
  if (values.dtype == DType::f32) return static_cast<const float*>(values.data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(values.data)[i];
  return values.dtype == DType::f16 ? StoredFp16::widen(bits) : StoredBf16::widen(bits);
}

// Nearest even; beyond its range FP16 becomes infinite, which the end of a pass notices.
__device__ __forceinline__ void store_value(const MutableValues& values, std::int64_t i, float x) {
  if (values.dtype == DType::f32)
    static_cast<float*>(values.data)[i] = x;
  else
    static_cast<std::uint16_t*>(values.data)[i] =
        static_cast<std::uint16_t>(values.dtype == DType::f16 ? pack_fp16(x, 0.0f) : pack_bf16(x, 0.0f));
}

}  // namespace halfbyte::cuda
