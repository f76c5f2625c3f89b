// Keys and values of the tokens a model has read so far, one dense block a layer.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "model/config.h"

namespace halfbyte {

class KvCache {
 public:
  // Room for `capacity` positions at once; memory is 2 * layers * capacity * kv_heads * head_dim floats.
  KvCache(const ModelConfig& config, std::int64_t capacity) : capacity_(capacity) {
    for (std::int64_t i = 0; i < config.layers; ++i) {
      keys_.emplace_back(capacity * config.kv_heads * config.head_dim);
      values_.emplace_back(capacity * config.kv_heads * config.head_dim);
    }
  }
  std::int64_t length() const { return length_; }  // positions filled
  std::int64_t capacity() const { return capacity_; }
  void clear() { length_ = 0; }
  void advance(std::int64_t positions) { length_ += positions; }
  float* keys(std::int64_t layer) {
    return keys_[static_cast<std::size_t>(layer)].data();
  }  // [capacity, kv_heads, head_dim]
  float* values(std::int64_t layer) { return values_[static_cast<std::size_t>(layer)].data(); }  // the same

 private:
  std::int64_t capacity_ = 0, length_ = 0;
  std::vector<Array<float>> keys_, values_;
};

}  // namespace halfbyte
