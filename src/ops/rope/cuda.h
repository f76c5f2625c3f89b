// Rotary position embedding on a CUDA device, together with what follows it: new keys and values enter the cache.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"
#include "device/cuda/values.h"

namespace halfbyte::cuda {

// Rows of something that others may lie beside.
struct StridedRows {
  Values values;
  std::int64_t stride = 0;  // of rows
};

// Turns q and, on its way into the cache, k; pairs (i, i + D/2) of each head as in op.h, bit for bit. v is copied. Every pointer
// is on the device.
struct RopeAppend {
  std::int64_t rows = 0, heads = 0, kv_heads = 0, half = 0;  // D = 2 * half
  const std::int32_t* first_position =
      nullptr;  // [1], of row 0: read when the kernel runs, so that a captured graph goes on
  const float* cosines = nullptr;  // [positions, half] of RopeTable
  const float* sines = nullptr;
  StridedRows q;     // [rows, heads, D]
  StridedRows k, v;  // [rows, kv_heads, D]
  const float *q_norm = nullptr,
              *k_norm = nullptr;  // [D] each: RMSNorm of every head before it turns; or null
  float eps = 0;
  float* turned = nullptr;  // [rows, heads, D], q turned; may be q where that is dense float32
  float* keys = nullptr;    // [capacity, kv_heads, D]; rows first_position and on are written
  float* values = nullptr;
};

inline constexpr std::int64_t kLargestTurnedHead = 512;  // D

// Returns a cudaError_t.
int rope_append(const RopeAppend& args, Stream stream);

}  // namespace halfbyte::cuda
