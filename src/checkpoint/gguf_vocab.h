// The vocabulary of a GGUF file, and its two kinds of tokenizer as the parts of a tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/gguf.h"
#include "io/json.h"

namespace halfbyte {

// Numbers of tokenizer.ggml.token_type.
enum class TokenKind : std::uint8_t { normal = 1, unknown = 2, control = 3, user = 4, unused = 5, byte = 6 };

// Texts are UTF-8 and unique among the used tokens; unused ids ("[PAD7]") only fill up the embedding.
class GgufVocab {
 public:
  GgufVocab(const GgufFile& file, std::int64_t rows);  // one token a row of the embedding

  std::int64_t size() const { return static_cast<std::int64_t>(texts_.size()); }
  std::string_view text(std::int64_t id) const { return texts_[static_cast<std::size_t>(id)]; }
  TokenKind kind(std::int64_t id) const { return kinds_[static_cast<std::size_t>(id)]; }
  bool used(std::int64_t id) const { return kind(id) != TokenKind::unused; }
  std::int64_t find(std::string_view text) const;  // id of a used token, or -1
  Json json() const;                               // {text: id} of the used tokens

 private:
  std::span<const std::string_view> texts_;
  std::vector<TokenKind> kinds_;
  std::unordered_map<std::string_view, std::int64_t> ids_;
};

// The members normalizer, pre_tokenizer, decoder and model of a tokenizer.json.
Json byte_level_bpe(const GgufFile& file, const GgufVocab& vocab);
Json sentencepiece_bpe(const GgufFile& file, const GgufVocab& vocab);

// The name that tokenizer.ggml.pre has for the normalizer, pre_tokenizer and ignore_merges of a tokenizer.json; nothing for
// combinations without one.
std::optional<std::string_view> pre_tokenizer_name(const Json& tokenizer);

// Whether a tokenizer.json of the SentencePiece kind puts a space before a text; nothing where it does something else to it
// than llama.cpp. `only_first`: not after special tokens, where llama.cpp does.
struct SpacePrefix {
  bool prefix = false, only_first = false;
};
std::optional<SpacePrefix> sentencepiece_prefix(const Json& tokenizer);
// Scores that make llama.cpp join pieces in the order of the merges: minus the rank of the first merge that makes the piece.
// texts and kinds: all tokens by id; merges: pairs. Throws unsupported where scores cannot say what the merges do.
std::vector<float> sentencepiece_scores(const std::vector<std::string>& texts,
                                        const std::vector<TokenKind>& kinds,
                                        const std::vector<std::pair<std::string, std::string>>& merges,
                                        const std::string& where);

}  // namespace halfbyte
