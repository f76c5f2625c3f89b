// Unicode tables and normal forms on top of utf8proc, kept at the versions that the tokenizers package uses.
#include "model/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/fail.h"

namespace halfbyte {

namespace {

#include "model/unicode_tables.inc"

bool contains(std::span<const CodeRange> ranges, char32_t c) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t value, const CodeRange& range) { return value < range.lo; });
  return after != ranges.begin() && c <= std::prev(after)->hi;
}

// Number of bytes of the character that starts at bytes[0], and whether they are all there and sound. For a broken
// one, the length is that of its longest beginning that sound UTF-8 could have, at least 1.
struct Character {
  std::size_t length;
  bool sound;
  bool cut;  // broken only because the bytes end
};

Character character_at(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const std::size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < wanted; ++i) {
    if (i == bytes.size()) return {i, false, true};
    unsigned lo = 0x80, hi = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) lo = 0xA0;
      if (lead == 0xED) hi = 0x9F;  // surrogates
      if (lead == 0xF0) lo = 0x90;
      if (lead == 0xF4) hi = 0x8F;
    }
    if (at(i) < lo || at(i) > hi) return {i, false, false};
  }
  return {wanted, true, false};
}

// utf8proc decomposes and composes; the ordering of marks between is done here, since utf8proc's own takes quadratic
// time on a long run of marks.
void append_normalized(std::string& out, std::string_view text, NormalForm form) {
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compat = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compat ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  std::array<utf8proc_int32_t, 32> parts{};  // the longest decomposition has 18
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, i));
    const utf8proc_ssize_t count = utf8proc_decompose_char(c, parts.data(), parts.size(), options, nullptr);
    if (count < 0 || count > std::ssize(parts)) fail_input("text to normalize: {}", utf8proc_errmsg(count));
    points.insert(points.end(), parts.begin(), parts.begin() + count);
  }
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto begin = points.begin(); begin != points.end();) {
    const auto starter = [&](utf8proc_int32_t c) { return combining_class(c) == 0; };
    begin = std::find_if_not(begin, points.end(), starter);
    const auto end = std::find_if(begin, points.end(), starter);
    std::stable_sort(begin, end, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(points.data(), std::ssize(points), options);
  if (count < 0) fail_input("text to normalize: {}", utf8proc_errmsg(count));
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(out, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
}

}  // namespace

std::span<const CategoryRange> added_categories() { return kAddedCategories; }
std::span<const CodeRange> later_numbers() { return kLaterNumbers; }
std::span<const CodeRange> white_space() { return kWhiteSpace; }
std::span<const CodeRange> other_pattern_word() { return kOtherPatternWord; }

bool is_white_space(char32_t c) { return contains(kWhiteSpace, c); }

bool is_word(char32_t c) {
  const auto in_word = [](std::string_view category) {
    return category[0] == 'L' || category[0] == 'M' || category == "Nd" || category == "Nl" ||
           category == "Pc";
  };
  if (in_word(utf8proc_category_string(static_cast<utf8proc_int32_t>(c))) || contains(kOtherWord, c))
    return true;
  return std::any_of(
      std::begin(kAddedCategories), std::end(kAddedCategories),
      [&](const CategoryRange& range) { return range.lo <= c && c <= range.hi && in_word(range.category); });
}

char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto byte = [&] { return static_cast<char32_t>(static_cast<unsigned char>(text[position++])); };
  const char32_t lead = byte();
  if (lead < 0x80) return lead;
  int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t c = lead & (0x3Fu >> more);
  while (more-- > 0 && position < text.size()) c = c << 6 | (byte() & 0x3F);
  return c;
}

char32_t previous_code_point(std::string_view text, std::size_t& position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  std::size_t start = position;
  return next_code_point(text, start);
}

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::string normalize(std::string_view text, NormalForm form) {
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), ascii)) return std::string(text);
  // A code point unknown to the package's version neither moves nor composes, so it parts the text in two.
  std::string out;
  std::size_t begin = 0, position = 0;
  while (position < text.size()) {
    const std::size_t here = position;
    if (!contains(kNotNormalized, next_code_point(text, position))) continue;
    append_normalized(out, text.substr(begin, here - begin), form);
    out += text.substr(here, position - here);
    begin = position;
  }
  append_normalized(out, text.substr(begin), form);
  return out;
}

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    const Character character = character_at(bytes.substr(i));
    if (character.sound)
      out += bytes.substr(i, character.length);
    else
      out += "\uFFFD";
    i += character.length;
  }
  return out;
}

std::size_t whole_characters(std::string_view bytes) {
  for (std::size_t i = bytes.size() - std::min<std::size_t>(bytes.size(), 3); i < bytes.size(); ++i) {
    if ((static_cast<unsigned char>(bytes[i]) & 0xC0) == 0x80) continue;
    const Character character = character_at(bytes.substr(i));
    if (character.cut && i + character.length == bytes.size()) return i;
  }
  return bytes.size();
}

}  // namespace halfbyte
