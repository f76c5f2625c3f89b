// Byte-pair encoding: a vocabulary, ranked merges, and the splitting of one word into tokens.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace halfbyte {

// Map from a pair of token ids to the merge's rank and result: open addressing, filled once.
class MergeTable {
 public:
  struct Merge {
    std::int32_t rank, result;
  };
  void reserve(std::size_t merges);
  void set(std::int32_t left, std::int32_t right, Merge merge);  // a later one replaces an earlier one
  const Merge* find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge{};
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  std::size_t place(std::uint64_t key) const;
  std::vector<Slot> slots_;  // a power of two, at most half full
};

class Bpe {
 public:
  Bpe() = default;
  Bpe(Bpe&&) = default;  // not copied: the map points into the tokens
  Bpe& operator=(Bpe&&) = default;

  // The "model" of tokenizer.json; file opens messages.
  static Bpe from_json(const nlohmann::json& model, std::string_view file);

  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  const std::string& token(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::optional<std::int32_t> id_of(std::string_view token) const;

  // Appends the ids of one word (UTF-8). Time grows as n log n with its length.
  void encode(std::string_view word, std::vector<std::int32_t>& out) const;

 private:
  struct Symbol {
    std::int32_t id, previous, next;  // positions among the symbols, -1 at the ends
    bool alive;
  };
  void read_vocab(const nlohmann::json& model, std::string_view file);
  void read_merges(const nlohmann::json& model, std::string_view file);
  std::vector<Symbol> symbols(std::string_view word) const;
  void merge(std::vector<Symbol>& symbols) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // keys point into tokens_
  MergeTable merges_;
  std::string prefix_, suffix_;  // continuing_subword_prefix, end_of_word_suffix
  std::optional<std::int32_t> unknown_;
  std::vector<std::int32_t> byte_ids_;  // of <0x00> to <0xFF>, -1 where absent; empty without byte_fallback
  bool fuse_unknown_ = false, ignore_merges_ = false;
};

}  // namespace halfbyte
