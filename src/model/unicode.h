// Unicode as the tokenizers package knows it: categories, white space, normal forms, and the UTF-8 they come in.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace halfbyte {

struct CodeRange {
  char32_t lo, hi;  // both inside
};
struct CategoryRange {
  char32_t lo, hi;
  std::string_view category;  // "Lu", "Nd", ...
};

// Each part of the package has another Unicode version, found by experiment: 16 in patterns and beside added tokens,
// 17 in Digits, 9 in the normal forms. The libraries below have 14 (PCRE2) and 15 (utf8proc); these tables hold the
// differences.
std::span<const CategoryRange> added_categories();  // in patterns, what PCRE2 does not know yet
std::span<const CodeRange> later_numbers();         // for Digits, what \p{N} of a pattern does not hold
std::span<const CodeRange> white_space();           // sorted
std::span<const CodeRange> other_pattern_word();    // \w of a pattern besides L, M, Nd, Nl, Pc
bool is_white_space(char32_t c);
bool is_word(char32_t c);  // beside an added token that must be a single word

// One code point of sound UTF-8 at position, which moves behind it.
char32_t next_code_point(std::string_view text, std::size_t& position);
// The code point that ends at position (> 0), which moves before it.
char32_t previous_code_point(std::string_view text, std::size_t& position);
void append_utf8(std::string& text, char32_t c);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, NormalForm form);  // text must be sound UTF-8

// Bytes as text: each maximal piece that cannot be part of sound UTF-8 becomes one U+FFFD.
std::string utf8_lossy(std::string_view bytes);
// Length of the longest part of bytes that does not end inside a character.
std::size_t whole_characters(std::string_view bytes);

}  // namespace halfbyte
