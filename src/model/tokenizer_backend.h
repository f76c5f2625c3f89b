// What a tokenizer of any kind can do; one implementation a file format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer_config.h"

namespace halfbyte {

class TokenizerBackend {
 public:
  virtual ~TokenizerBackend() = default;
  virtual std::int32_t vocab_size() const = 0;              // highest id + 1
  virtual std::string token_of(std::int32_t id) const = 0;  // as the file spells it; id is in range
  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  virtual bool is_special(std::int32_t id) const = 0;
  virtual std::vector<std::int32_t> encode(std::string_view text,
                                           bool add_special) const = 0;  // text is UTF-8
  virtual std::string decode(std::span<const std::int32_t> ids, bool skip_special) const = 0;
  // The bytes of one token where decoding is their concatenation, or nothing where it is more than that.
  virtual std::optional<std::string> bytes_of(std::int32_t) const { return std::nullopt; }
  // The byte that a token like <0x0A> stands for among tokens of text.
  virtual std::optional<char> byte_of(std::int32_t) const { return std::nullopt; }
};

// tokenizer.json
std::unique_ptr<const TokenizerBackend> load_json_tokenizer(const std::filesystem::path& file,
                                                            const TokenizerConfig& config);
// tokenizer.model of SentencePiece
std::unique_ptr<const TokenizerBackend> load_sentencepiece(const std::filesystem::path& file,
                                                           const TokenizerConfig& config);

}  // namespace halfbyte
