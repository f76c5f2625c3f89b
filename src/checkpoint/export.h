// Writes a checkpoint in the layout of an ecosystem: codes and scales as they are, under other names and conventions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace halfbyte {

// Folders; GGUF files are written by gguf_export.h.
enum class ExportFormat : std::uint8_t { halfbyte, bitsandbytes, compressed_tensors, halfbyte_arc, modelopt };

// "halfbyte", "bitsandbytes", "compressed-tensors", "halfbyte-arc", "modelopt".
std::optional<ExportFormat> find_export_format(std::string_view name);

struct ExportOptions {
  std::int64_t max_shard_bytes = 0;  // of tensor data in one file; 0: all in one
  bool weights_only = false;         // leaves out how activations are rounded
  // A global scale whose reciprocal is not exact becomes the rounded one: values change in their last bit.
  bool allow_rounding = false;
};

struct ExportSummary {
  std::int64_t quantized = 0, plain = 0;  // tensors, in the model's sense
  std::int64_t files = 0, bytes = 0;      // of weights
  std::vector<std::string> notes;         // sentences for the user: what was left out or deserves a look
};

// Called after each tensor.
using ExportProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Throws unsupported, with the layer and the reason, for what these checkpoints cannot hold whatever the numbers are: a method that
// changes the order or scale of columns (halfbyte-arc holds the order, and residual channels), layers of different formats.
void check_exportable(const HalfbyteQuantization& quantization, ExportFormat format,
                      const ExportOptions& options);

// Writes config.json with its quantization_config, weights and tokenizer files into the folder `out`, which must be fresh.
// Throws unsupported, before the first byte is written, with the layer and the reason where the format cannot hold it: another
// number format, a method that changes the order or scale of columns (halfbyte-arc holds the order, and residual channels),
// activations without a static scale, a global scale whose reciprocal is not exact.
ExportSummary export_checkpoint(const Checkpoint& checkpoint, ExportFormat format,
                                const std::filesystem::path& out, const ExportOptions& options,
                                const ExportProgress& progress = {});

}  // namespace halfbyte
