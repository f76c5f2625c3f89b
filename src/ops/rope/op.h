// Rotary position embedding, half-split form: pairs (i, i + D/2) of each head turn by position *
// inverse_frequency[i].
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "core/thread_pool.h"

namespace halfbyte {

// Cosines and sines for positions [0, positions): angle = float32(position) * float32 inverse frequency, as
// the models were trained. Grows on demand, never changes what it holds.
class RopeTable {
 public:
  explicit RopeTable(std::span<const float> inverse_frequencies);  // [D/2]
  void reserve(std::int64_t positions);
  std::int64_t half() const { return inverse_frequencies_.size(); }
  const float* cosines(std::int64_t position) const { return cosines_.data() + position * half(); }  // [D/2]
  const float* sines(std::int64_t position) const { return sines_.data() + position * half(); }      // [D/2]

 private:
  Array<float> inverse_frequencies_, cosines_, sines_;
  std::int64_t positions_ = 0;
};

struct Rope {
  std::int64_t rows = 0, heads = 0;  // D is twice the table's half
  std::int64_t first_position = 0;   // of row 0; the table must hold first_position + rows
  float* x = nullptr;                // [rows, heads, D] in place, row stride x_stride
  std::int64_t x_stride = 0;
};

void rope(const Rope& args, const RopeTable& table, ThreadPool& pool);

}  // namespace halfbyte
