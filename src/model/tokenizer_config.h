// tokenizer_config.json and chat_template.jinja: which tokens open and close a text, and how a chat becomes one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/tokenizer_added.h"

namespace halfbyte {

struct TokenizerConfig {
  std::optional<std::string> bos_token, eos_token, unk_token, pad_token;
  std::optional<bool> add_bos_token, add_eos_token;
  std::map<std::string, std::string> chat_templates;  // by name; the usual one is "default"
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder and added_tokens.json, by ascending id
};

// Reads what of these files the directory holds; all of them may be absent.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& model_dir);

}  // namespace halfbyte
