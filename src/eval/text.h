// How a text file becomes token windows: the protocols of perplexity, so that numbers compare with others'.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {

// windows   the WikiText convention of GPTQ and its followers: lines joined by blank lines, tokenized once
// without BOS,
//           cut into windows of seq_len, the rest dropped; each window is scored alone over its seq_len - 1
//           predictions.
// document  the text as it is, BOS first where the tokenizer has one, every token after the first input
// scored exactly
//           once: windows overlap by one token, the last one may be short.
enum class Protocol { windows, document };

Protocol protocol_from_name(std::string_view name);
std::string_view protocol_name(Protocol protocol);

// The text that the windows protocol tokenizes: each line with its newline, a line of white space as nothing,
// joined by two newlines. Line ends are \n, \r\n and \r alike, and come out as \n.
std::string join_rows(std::string_view text);

// The inputs of one forward pass; every token but the first is a prediction to score.
using TokenWindow = std::span<const std::int32_t>;

// At most max_windows windows (0: all). Throws bad_input where the text is too short for one.
std::vector<TokenWindow> cut_windows(std::span<const std::int32_t> ids, Protocol protocol,
                                     std::int64_t seq_len, std::int64_t max_windows);

}  // namespace halfbyte
