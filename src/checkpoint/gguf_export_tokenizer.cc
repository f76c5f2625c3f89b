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
        kinds_(static_cast<std::size_t>(rows), kUnused) {
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
      if (kinds_[id] == kUnused) texts_[id] = fmt::format("[PAD{}]", id);
  }

  std::optional<std::uint32_t> find(const std::string& text) const {
    for (std::size_t id = 0; id < texts_.size(); ++id)
      if (kinds_[id] != kUnused && texts_[id] == text) return static_cast<std::uint32_t>(id);
    return std::nullopt;
  }
  std::vector<std::string> take_texts() { return std::move(texts_); }
  std::vector<std::int32_t> take_kinds() { return std::move(kinds_); }

 private:
  static constexpr auto kUnused = static_cast<std::int32_t>(TokenKind::unused);

  void set(const Json& id, const std::string& text, TokenKind kind) {
    if (!id.is_number_integer() || id < 0 || id >= static_cast<std::int64_t>(texts_.size()))
      fail_input("{}: token {} has the id {}, but the embedding has {} rows", where_, quote(text), id.dump(),
                 texts_.size());
    const auto place = id.get<std::size_t>();
    if (kinds_[place] != kUnused && texts_[place] != text)
      fail_input("{}: the tokens {} and {} have the same id {}", where_, quote(texts_[place]), quote(text),
                 place);
    texts_[place] = text;
    kinds_[place] = static_cast<std::int32_t>(kind);
  }

  const std::string& where_;
  std::vector<std::string> texts_;
  std::vector<std::int32_t> kinds_;  // TokenKind
};

std::vector<std::string> merges_of(const Json& model, const std::string& where) {
  std::vector<std::string> merges;
  for (const Json& merge : json_array(model, "merges", where)) {
    if (merge.is_string()) {
      merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    } else {
      fail_input("{}: a merge is {}, expected two tokens", where, quote(merge.dump()));
    }
  }
  return merges;
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
  if (json_optional_string(model, "type", where).value_or("BPE") != "BPE" ||
      json_optional_bool(model, "byte_fallback", where).value_or(false))
    fail(ErrorKind::unsupported,
         "{}: only byte-level BPE is written to GGUF; this one is of the SentencePiece kind, whose scores it "
         "lacks",
         where);
  const auto pre = pre_tokenizer_name(tokenizer);
  if (!pre)
    fail(ErrorKind::unsupported,
         "{}: llama.cpp has no name for its pre-tokenizer and normalizer; smollm, gpt-2, llama-bpe and qwen2 "
         "are known",
         where);

  Vocabulary tokens(tokenizer, vocab, where, notes);
  keys.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  keys.emplace_back("tokenizer.ggml.pre", std::string(*pre));
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
  keys.emplace_back("tokenizer.ggml.add_space_prefix", false);
  if (std::string text = chat_template(settings, checkpoint.dir()); !text.empty())
    keys.emplace_back("tokenizer.chat_template", std::move(text));
  keys.emplace_back("tokenizer.ggml.tokens", tokens.take_texts());
  keys.emplace_back("tokenizer.ggml.token_type", tokens.take_kinds());
  keys.emplace_back("tokenizer.ggml.merges", merges_of(model, where));
}

}  // namespace halfbyte
