// Causal grouped-query attention on a CUDA device, float32 throughout, on the caller's stream.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"
#include "device/cuda/values.h"
#include "ops/rope/cuda.h"

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
  MutableValues out;              // [T, heads, head_dim]
  std::int64_t capacity =
      0;  // positions of keys and values; one new token alone asks for it, and for the next
  void* workspace = nullptr;  // [attention_workspace()], all zero before the first call and left so
};

// Bytes of workspace for one new token.
std::int64_t attention_workspace(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                                 std::int64_t capacity);

// Softmax over blocks of keys with a running maximum, blocks added in order; one new token alone has its keys shared among thread
// blocks. The same bits in every run. Returns a cudaError_t, as the next.
int attention(const DeviceAttention& args, Stream stream);

// rope_append() and then attention() over what it writes; in one launch for one new token, where its heads have no norms.
int rope_attention(const RopeAppend& rope, const DeviceAttention& args, Stream stream);

}  // namespace halfbyte::cuda
