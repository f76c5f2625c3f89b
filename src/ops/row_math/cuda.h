// Losses and divergences of rows of logits on a CUDA device: what row_math gives the evaluation, a row a thread block.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"
#include "ops/row_math/op.h"

namespace halfbyte::cuda {

// Every pointer is on the device.
struct ScoreRows {
  std::int64_t rows = 0, vocab = 0;
  const float* logits = nullptr;          // [rows, vocab]
  const float* reference = nullptr;       // the same, or null
  const std::int32_t* targets = nullptr;  // [rows]
  TokenScore* scores = nullptr;           // [rows]
};

// Exponentials in float32, sums in double; the same bits in every run. Returns a cudaError_t, as the next.
int score_rows(const ScoreRows& args, Stream stream);

// The largest of `count` values and its index, the first of equals, as one number: *key must be 0 before.
int find_largest(const float* values, std::int64_t count, unsigned long long* key, Stream stream);
constexpr std::int32_t index_of_largest(unsigned long long key) {
  return static_cast<std::int32_t>(0x7FFFFFFFu - static_cast<std::uint32_t>(key));
}

}  // namespace halfbyte::cuda
