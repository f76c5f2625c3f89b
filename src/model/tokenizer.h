// Text to token ids and back, for the tokenizers that Hugging Face model directories hold.
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

class TokenizerBackend;

// Thread-safe: all calls are const and share nothing that changes.
class Tokenizer {
 public:
  // Reads tokenizer.json (byte-pair encoding), or else tokenizer.model (SentencePiece), and tokenizer_config.json.
  // tokenizer.json's truncation and padding are not applied. Where its post_processor adds no token, add_bos_token
  // and add_eos_token of tokenizer_config.json do.
  static Tokenizer load(const std::filesystem::path& model_dir);

  // text must be UTF-8. Ids are those of the tokenizers package. add_special: with the tokens that open and close it.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special) const;
  // Always sound UTF-8. skip_special leaves out special tokens. Ids outside the vocabulary are refused.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  std::int32_t vocab_size() const;  // highest id + 1; a model's embedding may have more rows
  std::string token_of(std::int32_t id) const;
  std::optional<std::int32_t> id_of(std::string_view token) const;
  bool is_special(std::int32_t id) const;
  std::optional<std::int32_t> bos_id() const { return bos_; }
  std::optional<std::int32_t> eos_id() const { return eos_; }
  const TokenizerConfig& config() const { return config_; }
  // The template of that name, or nothing.
  std::optional<std::string> chat_template(const std::string& name = "default") const;

 private:
  friend class TokenStream;
  TokenizerConfig config_;
  std::shared_ptr<const TokenizerBackend> backend_;
  std::optional<std::int32_t> bos_, eos_;
};

// Decodes ids as they come and never gives out part of a character. What push and finish return together is what
// decode() gives; only byte tokens of SentencePiece that are no sound UTF-8 may come out as another number of U+FFFD.
class TokenStream {
 public:
  // The tokenizer must outlive the stream.
  explicit TokenStream(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  std::string push(std::int32_t id);  // the text that is now certain, maybe empty
  std::string finish();               // the rest; the stream is then as new

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string bytes_;              // byte-level: those of a character that is not whole yet
  std::vector<std::int32_t> ids_;  // others: the tokens last given out, then those held back
  std::size_t given_ = 0;          // how many of ids_ are given out
  std::string given_text_;         // what these decode to
};

}  // namespace halfbyte
