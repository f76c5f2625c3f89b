// The steps of a decoder, each as the tokenizers package does it.
#include "model/tokenizer_decoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"
#include "model/pretokenizer.h"
#include "model/pretokenizer_regex.h"
#include "model/unicode.h"

namespace halfbyte {

namespace {

using Tokens = std::vector<std::string>;
using Step = std::function<Tokens(Tokens)>;

Tokens join(Tokens tokens, std::string_view between) {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += between;
    text += tokens[i];
  }
  return {std::move(text)};
}

Tokens byte_level(Tokens tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += characters_to_bytes(token);
  return {utf8_lossy(bytes)};
}

// A run of byte tokens is one text where it is sound UTF-8, and one U+FFFD a byte where it is not.
Tokens byte_fallback(Tokens tokens) {
  Tokens out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (is_utf8(run))
      out.push_back(run);
    else
      out.insert(out.end(), run.size(), "\uFFFD");
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = named_byte(token)) {
      run += *byte;
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  return out;
}

Step replace(Pattern pattern, std::string content) {
  return [pattern = std::move(pattern), content = std::move(content)](Tokens tokens) {
    std::vector<Span> spans;
    for (std::string& token : tokens) {
      pattern.spans(token, spans);
      std::string out;
      for (const Span& span : spans) {
        if (span.match)
          out += content;
        else
          out += token.substr(span.begin, span.end - span.begin);
      }
      token = std::move(out);
    }
    return tokens;
  };
}

// Takes up to start and stop copies of content off the ends of each token.
Step strip(std::string content, std::int64_t start, std::int64_t stop) {
  return [=](Tokens tokens) {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::int64_t i = 0; i < start && rest.starts_with(content); ++i)
        rest.remove_prefix(content.size());
      for (std::int64_t i = 0; i < stop && rest.ends_with(content); ++i) rest.remove_suffix(content.size());
      token = std::string(rest);
    }
    return tokens;
  };
}

// The mark becomes a space, and vanishes from the first token where one is put before the text.
Step metaspace(std::string mark, bool prepended) {
  return [=](Tokens tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string out;
      for (std::size_t at = 0; at < tokens[i].size();) {
        if (tokens[i].compare(at, mark.size(), mark) == 0) {
          if (i > 0 || !prepended) out += ' ';
          at += mark.size();
        } else {
          out += tokens[i][at++];
        }
      }
      tokens[i] = std::move(out);
    }
    return tokens;
  };
}

// A character from a member of the JSON object.
std::string read_character(const Json& value, std::string_view key, std::string_view where) {
  std::string text = json_string(value, key, where);
  std::size_t end = 0;
  if (!text.empty()) next_code_point(text, end);
  if (text.empty() || end != text.size()) fail_input("{}: {} must be one character", where, quote(key));
  return text;
}

// Whether one of the steps is ByteFallback.
bool read_steps(const Json& value, std::string_view where, std::vector<Step>& steps) {
  bool fallback = false;
  const std::string type = json_string(value, "type", where);
  if (type == "Sequence") {
    for (const Json& step : json_array(value, "decoders", where)) fallback |= read_steps(step, where, steps);
  } else if (type == "ByteLevel") {
    steps.push_back(byte_level);
  } else if (type == "ByteFallback") {
    steps.push_back(byte_fallback);
    fallback = true;
  } else if (type == "Fuse") {
    steps.push_back([](Tokens tokens) { return join(std::move(tokens), ""); });
  } else if (type == "Replace") {
    steps.push_back(replace(Pattern::from_json(json_member(value, "pattern", where), where),
                            json_string(value, "content", where)));
  } else if (type == "Strip") {
    steps.push_back(strip(read_character(value, "content", where), json_int64(value, "start", where),
                          json_int64(value, "stop", where)));
  } else if (type == "Metaspace") {
    const bool never = json_optional_string(value, "prepend_scheme", where) == "never" ||
                       json_optional_bool(value, "add_prefix_space", where) == false;
    steps.push_back(metaspace(read_character(value, "replacement", where), !never));
  } else {
    fail(ErrorKind::unsupported,
         "{} of type {} is not supported; halfbyte knows ByteFallback, ByteLevel, Fuse, Metaspace, "
         "Replace, Sequence and Strip",
         where, quote(type));
  }
  return fallback;
}

}  // namespace

std::optional<char> named_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (char c : token.substr(3, 2)) {
    const auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
    if (digit == std::string_view::npos || (digit < 10 && (c < '0' || c > '9'))) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit);
  }
  return static_cast<char>(value);
}

TokenDecoder TokenDecoder::from_json(const Json& value, std::string_view file) {
  TokenDecoder result;
  if (value.is_null()) {
    result.steps_.push_back([](Tokens tokens) { return join(std::move(tokens), " "); });
    return result;
  }
  result.byte_fallback_ = read_steps(value, fmt::format("{}: decoder", file), result.steps_);
  result.byte_level_ = json_string(value, "type", file) == "ByteLevel";
  return result;
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) tokens = step(std::move(tokens));
  return join(std::move(tokens), "").front();
}

}  // namespace halfbyte
