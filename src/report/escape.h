// Text from files, made safe for where it is put: names and paths may hold anything.
#pragma once

#include <string>
#include <string_view>

namespace halfbyte {

// Valid UTF-8 without control characters: those but the newline, and bytes that are not UTF-8, become U+FFFD, a tab a space.
std::string printable(std::string_view text);

// For the content of elements and attributes in double quotes.
std::string escape_html(std::string_view text);

// For a line of Markdown or a cell of its tables, newlines as spaces.
std::string escape_markdown(std::string_view text);

// JSON text for inside <script type="application/json">: no "<" or ">" or "&" is left (they occur in strings only).
std::string escape_script(std::string_view json);

// A word of a POSIX shell command: as it is where that is safe, else in single quotes.
std::string shell_word(std::string_view text);

}  // namespace halfbyte
