// Writes a model directory as a GGUF file for llama.cpp: tensors, metadata and tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "io/gguf_writer.h"

namespace halfbyte {

// What layers that are not quantized are stored as. The embedding and the head stay as they are, norms and biases are F32.
enum class GgufLinears : std::uint8_t { as_they_are, q8_0, q4_0 };

// "bf16" (as they are), "q8_0", "q4_0".
std::optional<GgufLinears> find_gguf_linears(std::string_view name);

struct GgufExportOptions {
  GgufLinears linears = GgufLinears::as_they_are;
  bool weights_only = false;    // leaves out how activations are rounded: llama.cpp has its own way
  bool allow_rounding = false;  // as in ExportOptions
};

struct GgufExport {
  std::int64_t tensors = 0, bytes = 0;
  std::vector<std::string> notes;
};

// Families: llama, mistral, qwen2, qwen3; formats of quantized layers: nvfp4 (rows a multiple of 64) and mxfp4, codes and scales
// bit for bit. Throws unsupported, with the layer and the reason, for anything that llama.cpp would compute otherwise: other
// formats, changed inputs, rope scaling other than linear and llama3, tokenizers that neither the name of a pre-tokenizer nor
// SentencePiece scores describe.
GgufExport export_gguf(const Checkpoint& checkpoint, const std::filesystem::path& file,
                       const GgufExportOptions& options,
                       const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

using GgufKeys = std::vector<std::pair<std::string, GgufMetadata>>;

// The parts of it. Sizes that the tensors depend on:
struct GgufTarget {
  std::string arch;  // "llama", "qwen2", "qwen3"
  std::int64_t head_dim = 0, vocab = 0;
  std::vector<float> rope_divisors;  // Llama 3's, [head_dim / 2], or empty
};
// Keys of the model, from config.json.
GgufTarget gguf_model_keys(const Checkpoint& checkpoint, GgufKeys& keys);
// Keys of the tokenizer, one token a row of the embedding; notes for the user.
void gguf_tokenizer_keys(const Checkpoint& checkpoint, std::int64_t vocab, GgufKeys& keys,
                         std::vector<std::string>& notes);

}  // namespace halfbyte
