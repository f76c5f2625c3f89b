// Turns a GGUF model file into a Hugging Face model folder with BF16 weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace halfbyte {

struct GgufImport {
  std::string architecture;  // general.architecture
  std::int64_t tensors = 0, parameters = 0;
  std::int64_t bytes_read = 0, bytes_written = 0;  // of model.gguf and model.safetensors
};

// Called after each tensor with the bytes done so far and in all.
using ImportProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Writes config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json to the folder
// `target`, which appears when complete. Architectures: llama (also Mistral and SmolLM2), qwen2, qwen3. Weights are
// decoded to float32 and rounded to BF16, nearest even, one tensor at a time. Whatever would make the folder mean
// something else than the file (an unknown tensor, rope scaling or pre-tokenizer) is refused by name.
GgufImport import_gguf(const std::filesystem::path& model, const std::filesystem::path& target,
                       bool overwrite, const ImportProgress& progress);

}  // namespace halfbyte
