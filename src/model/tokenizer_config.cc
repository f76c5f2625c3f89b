// Reads the small files beside a tokenizer.
#include "model/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::int64_t kMaxTemplateBytes = 1 << 20;

// A token is a string, or an object with its content and flags.
std::optional<std::string> read_token(const Json& config, std::string_view key, std::string_view where) {
  const Json* value = json_find(config, key);
  if (!value) return std::nullopt;
  if (value->is_object()) return json_string(*value, "content", fmt::format("{}: {}", where, key));
  return json_string(config, key, where);
}

void read_templates(const Json& config, std::string_view where,
                    std::map<std::string, std::string>& templates) {
  const Json* value = json_find(config, "chat_template");
  if (!value) return;
  if (value->is_array()) {
    for (const Json& entry : *value)
      templates[json_string(entry, "name", where)] = json_string(entry, "template", where);
  } else {
    templates["default"] = json_string(config, "chat_template", where);
  }
}

void read_added(const Json& config, std::string_view where, std::vector<AddedToken>& tokens) {
  const Json* value = json_find(config, "added_tokens_decoder");
  if (!value) return;
  if (!value->is_object()) fail_input("{}: added_tokens_decoder must be an object", where);
  for (const auto& [key, entry] : value->items()) {
    AddedToken token = read_added_token(entry, where);
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0)
      fail_input("{}: added_tokens_decoder has the key {}, expected a token id", where, quote(key));
    tokens.push_back(std::move(token));
  }
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::filesystem::path& model_dir) {
  TokenizerConfig config;
  if (const auto path = model_dir / "tokenizer_config.json"; exists(path)) {
    const Json json = read_json_file(path);
    const std::string where = path.string();
    if (!json.is_object()) fail_input("{}: must be a JSON object", where);
    config.bos_token = read_token(json, "bos_token", where);
    config.eos_token = read_token(json, "eos_token", where);
    config.unk_token = read_token(json, "unk_token", where);
    config.pad_token = read_token(json, "pad_token", where);
    config.add_bos_token = json_optional_bool(json, "add_bos_token", where);
    config.add_eos_token = json_optional_bool(json, "add_eos_token", where);
    read_templates(json, where, config.chat_templates);
    read_added(json, where, config.added_tokens);
  }
  if (const auto path = model_dir / "added_tokens.json"; exists(path)) {
    const Json json = read_json_file(path);
    const std::string where = path.string();
    if (!json.is_object()) fail_input("{}: must be a JSON object", where);
    for (const auto& [content, value] : json.items()) {
      const bool known = std::any_of(config.added_tokens.begin(), config.added_tokens.end(),
                                     [&](const AddedToken& token) { return token.content == content; });
      if (known) continue;
      const std::int64_t id = json_int64(json, content, where);
      if (id < 0 || id > 1 << 30) fail_input("{}: token {} has the id {}", where, quote(content), id);
      config.added_tokens.push_back({.id = static_cast<std::int32_t>(id), .content = content});
    }
  }
  std::stable_sort(config.added_tokens.begin(), config.added_tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  // The separate file is the newer habit and wins.
  if (const auto path = model_dir / "chat_template.jinja"; exists(path))
    config.chat_templates["default"] = read_text_file(path, kMaxTemplateBytes);
  return config;
}

}  // namespace halfbyte
