// A checkpoint in a few figures: what its layers are stored as and how much that takes.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/checkpoint.h"

namespace halfbyte {

struct CheckpointSummary {
  std::string weights;         // "nvfp4 pow2", "BF16", or several joined by ", "
  std::string activations;     // "nvfp4 pow2 per tensor", "float"
  double bits_per_weight = 0;  // of the layers' matrices: scales counted, embedding, head and norms not
  std::int64_t bytes = 0;      // of all tensors
};

CheckpointSummary summarize(const Checkpoint& checkpoint);

}  // namespace halfbyte
