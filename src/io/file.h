// Whole files as text: the small ones (configs, templates, word lists), with a cap on their size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace halfbyte {

inline constexpr std::int64_t kMaxTextBytes = std::int64_t{64} << 20;

// The bytes of a regular file of at most max_bytes; throws Error (io or bad_input) for anything else.
std::string read_text_file(const std::filesystem::path& path, std::int64_t max_bytes = kMaxTextBytes);

}  // namespace halfbyte
