// Arrays on the device whose type is chosen at run time: what kernels of one forward pass hand to each other.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace halfbyte::cuda {

// Numbers of f32, bf16 or f16.
struct Values {
  const void* data = nullptr;
  DType dtype = DType::f32;

  Values from(std::int64_t index) const {
    return {static_cast<const char*>(data) + index * dtype_bytes(dtype), dtype};
  }
};
struct MutableValues {
  void* data = nullptr;
  DType dtype = DType::f32;

  operator Values() const { return {data, dtype}; }
  MutableValues from(std::int64_t index) const {
    return {static_cast<char*>(data) + index * dtype_bytes(dtype), dtype};
  }
};

}  // namespace halfbyte::cuda
