// UTF-8 checks and quoting for messages.
#include "io/text.h"

#include <fmt/core.h>

#include <cstdint>

namespace halfbyte {

namespace {

// Length of the well-formed sequence at text[at], or 0.
std::size_t sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if ((lead & 0xF0) == 0xE0) {
    if (!tail(1) || !tail(2)) return 0;
    const std::uint32_t code = (lead & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
    return code >= 0x800 && (code < 0xD800 || code > 0xDFFF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    const std::uint32_t code = (lead & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
    return code >= 0x10000 && code <= 0x10FFFF ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string quote(std::string_view text) {
  constexpr std::size_t kMost = 120;
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    if (out.size() > kMost) return out + "...\"";
    const std::size_t length = sequence(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    // U+0080..U+009F (lead byte C2) are control characters too.
    const bool control = byte < 0x20 || byte == 0x7F ||
                         (byte == 0xC2 && length == 2 && static_cast<unsigned char>(text[at + 1]) < 0xA0);
    if (length == 0 || control) {
      out += fmt::format("\\x{:02X}", byte);
      if (length == 2) out += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[at + 1]));
      at += length == 2 ? 2 : 1;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out + "\"";
}

}  // namespace halfbyte
