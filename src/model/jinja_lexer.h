// Tokens of the template language, with white space controlled as transformers sets it: trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::jinja {

enum class TokenType {
  text,
  block_begin,
  block_end,
  print_begin,
  print_end,
  name,
  string,
  integer,
  real,
  op,
  end
};

struct Token {
  TokenType type;
  std::string text;  // a string's value, without quotes and escapes
  int line;
};

// Ends with a token of type end. Refuses text that is no template.
std::vector<Token> tokenize(std::string_view source);

}  // namespace halfbyte::jinja
