// Added tokens of a tokenizer: strings found in the text before anything else cuts it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace halfbyte {

struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool single_word = false;  // not found inside a word
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;       // and that on its right
  bool normalized = true;    // looked for in the normalized text, in its own normalized form
  bool special = false;      // left out when decoding for a reader
};

// {"content": ..., "lstrip": ..., ...}; where opens messages. The id is not read.
AddedToken read_added_token(const nlohmann::json& value, std::string_view where);

// Finds the longest of several strings at the leftmost place, again and again.
class AddedTokenFinder {
 public:
  void add(std::string_view text, const AddedToken& token);  // text is what is looked for
  bool empty() const { return tokens_.empty(); }

  // Cuts the text: plain(part) for what lies between tokens, found(id) for each token.
  void split(std::string_view text, const std::function<void(std::string_view)>& plain,
             const std::function<void(std::int32_t)>& found) const;

 private:
  struct Match {
    std::size_t length = 0;
    const AddedToken* token = nullptr;
  };
  Match longest_at(std::string_view text, std::size_t position) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> starts_{};                             // first bytes
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> node; the root is 0
  std::unordered_map<std::uint32_t, std::size_t> ends_;        // node -> index into tokens_
  std::uint32_t nodes_ = 1;
};

}  // namespace halfbyte
