// Decoders of tokenizer.json: how the strings of tokens become text again.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {

// The byte that "<0x0A>" names.
std::optional<char> named_byte(std::string_view token);

class TokenDecoder {
 public:
  // The "decoder" of tokenizer.json, or null: then tokens are joined with spaces, as the tokenizers package does.
  // Types: ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, Sequence.
  static TokenDecoder from_json(const nlohmann::json& value, std::string_view file);

  // Sound UTF-8; broken bytes become U+FFFD.
  std::string decode(std::vector<std::string> tokens) const;
  // Whether decoding is nothing but the bytes of the tokens, one after the other.
  bool is_byte_level() const { return byte_level_; }
  bool has_byte_fallback() const { return byte_fallback_; }

 private:
  std::vector<std::function<std::vector<std::string>(std::vector<std::string>)>> steps_;
  bool byte_level_ = false, byte_fallback_ = false;
};

}  // namespace halfbyte
