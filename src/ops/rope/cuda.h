// Rotary position embedding on a CUDA device, together with what follows it: new keys and values enter the cache.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"

namespace halfbyte::cuda {

// Turns q in place and k on its way into the cache, and copies v there; pairs (i, i + D/2) of each head as in op.h, bit for bit.
// Every pointer is on the device.
struct RopeAppend {
  std::int64_t rows = 0, heads = 0, kv_heads = 0, half = 0;  // D = 2 * half
  const std::int32_t* first_position =
      nullptr;  // [1], of row 0: read when the kernel runs, so that a captured graph goes on
  const float* cosines = nullptr;  // [positions, half] of RopeTable
  const float* sines = nullptr;
  float* q = nullptr;        // [rows, heads, D]
  const float* k = nullptr;  // [rows, kv_heads, D]
  const float* v = nullptr;
  float* keys = nullptr;  // [capacity, kv_heads, D]; rows first_position and on are written
  float* values = nullptr;
};

// Returns a cudaError_t.
int rope_append(const RopeAppend& args, Stream stream);

}  // namespace halfbyte::cuda
