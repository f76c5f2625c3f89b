#include "report/escape.h"

#include <algorithm>

#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The length of the UTF-8 sequence that starts here by its first byte.
std::size_t length_of(char c) {
  const auto lead = static_cast<unsigned char>(c);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

template <typename Map>
std::string mapped(std::string_view text, Map map) {
  std::string out;
  for (const char c : text)
    if (const std::string_view other = map(c); other.empty())
      out += c;
    else
      out += other;
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view piece = text.substr(at, length_of(text[at]));
    const auto byte = static_cast<unsigned char>(text[at]);
    // U+0080 to U+009F are control characters too, U+202A to U+202E and U+2066 to U+2069 turn the text around them.
    const bool turns = piece.size() == 3 && piece.substr(0, 2) == "\xE2\x80" &&
                       static_cast<unsigned char>(piece[2]) >= 0xAA &&
                       static_cast<unsigned char>(piece[2]) <= 0xAE;
    const bool isolates = piece.size() == 3 && piece.substr(0, 2) == "\xE2\x81" &&
                          static_cast<unsigned char>(piece[2]) >= 0xA6 &&
                          static_cast<unsigned char>(piece[2]) <= 0xA9;
    const bool control = (byte < 0x20 && byte != '\n') || byte == 0x7F ||
                         (piece.size() == 2 && byte == 0xC2 && static_cast<unsigned char>(piece[1]) < 0xA0);
    if (byte == '\t') {
      out += ' ';
    } else if (!is_utf8(piece)) {
      out += kReplacement;
      ++at;
      continue;
    } else if (control || turns || isolates) {
      out += kReplacement;
    } else {
      out += piece;
    }
    at += piece.size();
  }
  return out;
}

std::string escape_html(std::string_view text) {
  return mapped(printable(text), [](char c) -> std::string_view {
    switch (c) {
      case '&':
        return "&amp;";
      case '<':
        return "&lt;";
      case '>':
        return "&gt;";
      case '"':
        return "&quot;";
      case '\'':
        return "&#39;";
      default:
        return {};
    }
  });
}

std::string escape_markdown(std::string_view text) {
  return mapped(printable(text), [](char c) -> std::string_view {
    switch (c) {
      case '\\':
        return "\\\\";
      case '|':
        return "\\|";
      case '`':
        return "\\`";
      case '*':
        return "\\*";
      case '_':
        return "\\_";
      case '[':
        return "\\[";
      case '<':
        return "&lt;";
      case '&':
        return "&amp;";
      case '\n':
        return " ";
      default:
        return {};
    }
  });
}

std::string escape_script(std::string_view json) {
  return mapped(json, [](char c) -> std::string_view {
    switch (c) {
      case '<':
        return "\\u003c";
      case '>':
        return "\\u003e";
      case '&':
        return "\\u0026";
      default:
        return {};
    }
  });
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kSafe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%^";
  if (!text.empty() && text.find_first_not_of(kSafe) == std::string_view::npos) return std::string(text);
  std::string out = "'";
  for (const char c : text)
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  return out + "'";
}

}  // namespace halfbyte
