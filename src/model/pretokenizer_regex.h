// Patterns of tokenizer.json: a literal string or a regular expression in Oniguruma's syntax, run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {

struct Span {
  std::size_t begin, end;  // bytes
  bool match;
};

// The same expression in PCRE2's syntax, with classes spelled out where the two differ. Refuses, naming it, whatever
// does not mean the same in both.
std::string translate_pattern(std::string_view oniguruma, std::string_view where);

class Pattern {
 public:
  static Pattern literal(std::string text, std::string_view where);  // not empty
  static Pattern regex(std::string_view oniguruma, std::string_view where);
  // {"String": "..."} or {"Regex": "..."}
  static Pattern from_json(const nlohmann::json& value, std::string_view where);

  // All of the text cut into matches and what lies between them; nothing for an empty text. An empty match is a span
  // of length 0.
  void spans(std::string_view text, std::vector<Span>& out) const;

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;  // null for a literal
};

}  // namespace halfbyte
