// The tokenizer of a GGUF file as the files of a Hugging Face folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/gguf.h"

namespace halfbyte {

struct GgufTokenizer {
  std::string tokenizer;          // text of tokenizer.json
  std::string tokenizer_config;   // of tokenizer_config.json, with the chat template
  std::string generation_config;  // of generation_config.json: token ids that begin, end and pad
  std::optional<std::int64_t> bos, eos, pad;
};

// Byte-level BPE ("gpt2") with the pre-tokenizers smollm, gpt-2, llama-bpe and qwen2, and SentencePiece BPE ("llama").
// vocab: rows of the embedding; context: longest input.
GgufTokenizer read_gguf_tokenizer(const GgufFile& file, std::int64_t vocab, std::int64_t context);

}  // namespace halfbyte
