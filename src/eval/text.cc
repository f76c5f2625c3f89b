#include "eval/text.h"

#include <algorithm>

#include "core/fail.h"

namespace halfbyte {

Protocol protocol_from_name(std::string_view name) {
  if (name == "windows") return Protocol::windows;
  if (name == "document") return Protocol::document;
  fail_input("protocol \"{}\" is unknown, expected windows or document", name);
}

std::string_view protocol_name(Protocol protocol) {
  return protocol == Protocol::windows ? "windows" : "document";
}

std::string join_rows(std::string_view text) {
  std::string joined;
  joined.reserve(text.size() + text.size() / 4);
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
    const std::string_view line = text.substr(0, end);
    const bool ended = end < text.size();
    text.remove_prefix(end);
    if (text.starts_with("\r\n"))
      text.remove_prefix(2);
    else if (ended)
      text.remove_prefix(1);
    if (!first) joined += "\n\n";
    first = false;
    if (line.find_first_not_of(" \t\v\f\x1c\x1d\x1e\x1f") == std::string_view::npos) continue;
    joined += line;
    if (ended) joined += '\n';
  }
  return joined;
}

std::vector<TokenWindow> cut_windows(std::span<const std::int32_t> ids, Protocol protocol,
                                     std::int64_t seq_len, std::int64_t max_windows) {
  if (seq_len < 2) fail_input("a window of {} tokens holds no prediction, expected at least 2", seq_len);
  if (max_windows < 0) fail_input("{} windows make no sense, expected 0 (all) or more", max_windows);
  const auto size = static_cast<std::int64_t>(ids.size());
  const std::int64_t step = protocol == Protocol::windows ? seq_len : seq_len - 1;
  std::vector<TokenWindow> windows;
  for (std::int64_t begin = 0; max_windows == 0 || static_cast<std::int64_t>(windows.size()) < max_windows;
       begin += step) {
    const std::int64_t left = size - begin;
    if (protocol == Protocol::windows ? left < seq_len : left < 2) break;
    windows.push_back(
        ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(left, seq_len))));
  }
  if (windows.empty())
    fail_input(
        "the text has {} tokens, too few for one window of {}; give a longer text or a smaller --seq-len",
        size, seq_len);
  return windows;
}

}  // namespace halfbyte
