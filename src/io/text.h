// Text from files: whether it is UTF-8, and how it is quoted in a message without breaking the sentence or
// the terminal.
#pragma once

#include <string>
#include <string_view>

namespace halfbyte {

// Well-formed UTF-8: shortest forms only, no surrogates, at most U+10FFFF.
bool is_utf8(std::string_view text);

// The text in double quotes, control and non-UTF-8 bytes as \xNN, cut to about 120 bytes.
std::string quote(std::string_view text);

}  // namespace halfbyte
