// Causal grouped-query attention on a CUDA device, float32 throughout, on the caller's stream.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"

namespace halfbyte::cuda {

inline constexpr std::int64_t kLargestHeadDim = 256;

// As Attention of op.h; every pointer is on the device.
struct DeviceAttention {
  std::int64_t rows = 0;                         // new tokens T
  const std::int32_t* first_position = nullptr;  // [1], of row 0: read when the kernel runs
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t window = 0;
  float scale = 0;
  const float* q = nullptr;       // [T, heads, head_dim]
  const float* keys = nullptr;    // [capacity, kv_heads, head_dim]
  const float* values = nullptr;  // the same
  float* out = nullptr;           // [T, heads, head_dim]
};

// Softmax over blocks of keys in order, with a running maximum; the same bits in every run. Returns a cudaError_t.
int attention(const DeviceAttention& args, Stream stream);

}  // namespace halfbyte::cuda
