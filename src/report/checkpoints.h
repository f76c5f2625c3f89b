// What a report tells of a checkpoint directory: its bytes by precision, and what its manifest says about how it was made.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace halfbyte {

struct PrecisionRow {
  std::string name;  // "nvfp4 pow2", "BF16"
  std::int64_t tensors = 0, elements = 0,
               bytes = 0;  // elements of the model: padding and copies are not counted
};

struct CheckpointCard {
  std::string dir, weights, activations;
  double bits_per_weight = 0;
  std::vector<PrecisionRow> precisions;  // by name
  // Of its manifest (checkpoint/manifest.h), where it is there and has them.
  std::string tool;                                            // "halfbyte 0.1.0"
  std::vector<std::pair<std::string, std::string>> options;    // of quantize: name without --, value
  std::vector<std::pair<std::string, std::string>> checksums;  // what of, SHA-256
};

// Reads the headers of a model directory and its manifest; throws bad_input where the directory is no whole checkpoint or a
// member of the manifest has another type than docs/files.md says. A manifest need not be there, nor any member of it.
CheckpointCard read_checkpoint_card(const std::filesystem::path& dir);

}  // namespace halfbyte
