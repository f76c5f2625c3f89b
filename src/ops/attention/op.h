// Causal grouped-query attention over a key/value cache, float32.
#pragma once

#include <cstdint>

#include "core/thread_pool.h"

namespace halfbyte {

struct Attention {
  std::int64_t rows = 0;            // new tokens T
  std::int64_t first_position = 0;  // of row 0; keys 0 .. first_position + rows - 1 are in the cache
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t window = 0;   // each token sees this many positions, itself included; 0: all before it
  float scale = 0;           // multiplies q k^T, 1 / sqrt(head_dim)
  const float* q = nullptr;  // [T, heads, head_dim], row stride q_stride
  std::int64_t q_stride = 0;
  const float* k = nullptr;  // [positions, kv_heads, head_dim], dense
  const float* v = nullptr;  // the same
  float* out = nullptr;      // [T, heads, head_dim], dense
};

// Softmax in float32 with the row maximum subtracted. One work item is a head and a block of rows, so the
// result does not depend on the number of threads.
void attention(const Attention& args, ThreadPool& pool);

// Plain loops with double accumulation.
void attention_reference(const Attention& args);

}  // namespace halfbyte
