// The keys of a GGUF file that describe the tokenizer, made from tokenizer.json and tokenizer_config.json.
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/gguf_export.h"
#include "checkpoint/gguf_vocab.h"
#include "core/fail.h"
#include "io/file.h"
#include "io/text.h"

namespace halfbyte {

namespace {

namespace fs = std::filesystem;

class Vocabulary {
 public:
  Vocabulary(const Json& tokenizer, std::int64_t rows, const std::string& where,
             std::vector<std::string>& notes)
      : where_(where),
        texts_(static_cast<std::size_t>(rows)),
        kinds_(static_cast<std::size_t>(rows), TokenKind::unused) {
    for (const auto& [text, id] : json_object(json_object(tokenizer, "model", where), "vocab", where).items())
      set(id, text, TokenKind::normal);
    std::int64_t stripping = 0;
    for (const Json& token : json_array(tokenizer, "added_tokens", where)) {
      const bool special = json_optional_bool(token, "special", where).value_or(false);
      set(json_member(token, "id", where), json_string(token, "content", where),
          special ? TokenKind::control : TokenKind::user);
      for (const char* key : {"lstrip", "rstrip", "single_word"})
        stripping += json_optional_bool(token, key, where).value_or(false);
    }
    if (stripping)
      notes.push_back(fmt::format(
          "{}: added tokens that swallow spaces around them do so in llama.cpp by its own rules", where));
    for (std::size_t id = 0; id < texts_.size(); ++id)
      if (kinds_[id] == TokenKind::unused) texts_[id] = fmt::format("[PAD{}]", id);
  }

  std::optional<std::uint32_t> find(const std::string& text) const {
    for (std::size_t id = 0; id < texts_.size(); ++id)
      if (kinds_[id] != TokenKind::unused && texts_[id] == text) return static_cast<std::uint32_t>(id);
    return std::nullopt;
  }
  // For tokenizers of the SentencePiece kind: the tokens that stand for bytes, and for what is unknown.
  void mark_bytes(const std::string& unknown) {
    for (std::size_t id = 0; id < texts_.size(); ++id) {
      const std::string& text = texts_[id];
      if (text.size() == 6 && text.starts_with("<0x") && text.ends_with('>') &&
          kinds_[id] != TokenKind::unused)
        kinds_[id] = TokenKind::byte;
      if (!unknown.empty() && text == unknown) kinds_[id] = TokenKind::unknown;
    }
  }

  const std::vector<std::string>& texts() const { return texts_; }
  const std::vector<TokenKind>& kinds() const { return kinds_; }

 private:
  void set(const Json& id, const std::string& text, TokenKind kind) {
    if (!id.is_number_integer() || id < 0 || id >= static_cast<std::int64_t>(texts_.size()))
      fail_input("{}: token {} has the id {}, but the embedding has {} rows", where_, quote(text), id.dump(),
                 texts_.size());
    const auto place = id.get<std::size_t>();
    if (kinds_[place] != TokenKind::unused && texts_[place] != text)
      fail_input("{}: the tokens {} and {} have the same id {}", where_, quote(texts_[place]), quote(text),
                 place);
    texts_[place] = text;
    kinds_[place] = kind;
  }

  const std::string& where_;
  std::vector<std::string> texts_;
  std::vector<TokenKind> kinds_;
};

using Merges = std::vector<std::pair<std::string, std::string>>;

Merges merges_of(const Json& model, const std::string& where) {
  Merges merges;
  for (const Json& merge : json_array(model, "merges", where)) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    if (space == text.npos) fail_input("{}: a merge is {}, expected two tokens", where, quote(merge.dump()));
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

// Keys of byte-level BPE: the merges, and the name of what splits the text before.
void byte_level_keys(const Json& tokenizer, const Merges& merges, const std::string& where, GgufKeys& keys) {
  const auto pre = pre_tokenizer_name(tokenizer);
  if (!pre)
    fail(ErrorKind::unsupported,
         "{}: llama.cpp has no name for its pre-tokenizer and normalizer; smollm, gpt-2, llama-bpe and qwen2 "
         "are known",
         where);
  keys.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  keys.emplace_back("tokenizer.ggml.pre", std::string(*pre));
  keys.emplace_back("tokenizer.ggml.add_space_prefix", false);
  std::vector<std::string> texts;
  for (const auto& [left, right] : merges) texts.push_back(left + " " + right);
  keys.emplace_back("tokenizer.ggml.merges", std::move(texts));
}

// Keys of the SentencePiece kind: scores instead of merges.
void sentencepiece_keys(const Json& tokenizer, const Merges& merges, Vocabulary& tokens,
                        const std::string& where, GgufKeys& keys, std::vector<std::string>& notes) {
  const auto space = sentencepiece_prefix(tokenizer);
  if (!space)
    fail(ErrorKind::unsupported,
         "{}: its normalizer and pre-tokenizer treat spaces in another way than llama.cpp", where);
  if (space->only_first)
    notes.push_back(fmt::format(
        "{}: after a special token llama.cpp puts a space before the text, which this tokenizer does not",
        where));
  tokens.mark_bytes(
      json_optional_string(json_object(tokenizer, "model", where), "unk_token", where).value_or(""));
  keys.emplace_back("tokenizer.ggml.model", std::string("llama"));
  keys.emplace_back("tokenizer.ggml.pre", std::string("default"));
  keys.emplace_back("tokenizer.ggml.add_space_prefix", space->prefix);
  keys.emplace_back("tokenizer.ggml.scores",
                    sentencepiece_scores(tokens.texts(), tokens.kinds(), merges, where));
}

// Whether the post-processor puts a special token before (or, with `last`, after) a text.
bool frames(const Json* processor, bool last) {
  if (!processor || !processor->is_object()) return false;
  if (const Json* list = json_find(*processor, "processors"); list && list->is_array()) {
    for (const Json& entry : *list)
      if (frames(&entry, last)) return true;
    return false;
  }
  const Json* single = json_find(*processor, "single");
  if (!single || !single->is_array() || single->empty()) return false;
  return (last ? single->back() : single->front()).contains("SpecialToken");
}

std::string chat_template(const Json& settings, const fs::path& dir) {
  if (fs::exists(dir / "chat_template.jinja")) return read_text_file(dir / "chat_template.jinja");
  const Json* text = json_find(settings, "chat_template");
  if (text && text->is_string()) return text->get<std::string>();
  if (text && text->is_array())
    for (const Json& entry : *text)
      if (entry.is_object() && entry.value("name", "") == "default") return entry.value("template", "");
  return "";
}

// A special token's text: itself, or the content of an object.
std::optional<std::string> token_text(const Json& settings, const std::string& name) {
  const Json* token = json_find(settings, name + "_token");
  if (token && token->is_object()) token = json_find(*token, "content");
  if (token && token->is_string()) return token->get<std::string>();
  return std::nullopt;
}

}  // namespace

void gguf_tokenizer_keys(const Checkpoint& checkpoint, std::int64_t vocab, GgufKeys& keys,
                         std::vector<std::string>& notes) {
  const fs::path file = checkpoint.dir() / "tokenizer.json",
                 settings_file = checkpoint.dir() / "tokenizer_config.json";
  const std::string where = file.string();
  if (!fs::exists(file))
    fail(ErrorKind::unsupported, "{}: is not there; GGUF files are written for tokenizers of that kind only",
         where);
  const Json tokenizer = read_json_file(file);
  const Json settings = fs::exists(settings_file) ? read_json_file(settings_file) : Json::object();
  const Json& model = json_object(tokenizer, "model", where);
  if (json_optional_string(model, "type", where).value_or("BPE") != "BPE")
    fail(ErrorKind::unsupported, "{}: only BPE is written to GGUF", where);
  Vocabulary tokens(tokenizer, vocab, where, notes);
  const Merges merges = merges_of(model, where);
  if (json_optional_bool(model, "byte_fallback", where).value_or(false))
    sentencepiece_keys(tokenizer, merges, tokens, where, keys, notes);
  else
    byte_level_keys(tokenizer, merges, where, keys);
  for (const auto& [name, key] :
       {std::pair("bos", "bos"), {"eos", "eos"}, {"unk", "unknown"}, {"pad", "padding"}}) {
    const auto text = token_text(settings, name);
    auto id = text ? tokens.find(*text) : std::nullopt;
    if (const Json* number = json_find(checkpoint.config(), std::string(name) + "_token_id"); !id && number) {
      const Json& first = number->is_array() && !number->empty() ? number->front() : *number;
      if (first.is_number_integer() && first >= 0 && first < vocab) id = first.get<std::uint32_t>();
    }
    if (id) keys.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", key), *id);
  }
  const Json* processor = json_find(tokenizer, "post_processor");
  keys.emplace_back("tokenizer.ggml.add_bos_token", frames(processor, false));
  keys.emplace_back("tokenizer.ggml.add_eos_token", frames(processor, true));
  if (std::string text = chat_template(settings, checkpoint.dir()); !text.empty())
    keys.emplace_back("tokenizer.chat_template", std::move(text));
  keys.emplace_back("tokenizer.ggml.tokens", tokens.texts());
  std::vector<std::int32_t> kinds;
  for (const TokenKind kind : tokens.kinds()) kinds.push_back(static_cast<std::int32_t>(kind));
  keys.emplace_back("tokenizer.ggml.token_type", std::move(kinds));
}

}  // namespace halfbyte
