// Tokens, types and ids of a GGUF file, and the tokenizer files that both kinds of model share.
#include "checkpoint/gguf_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/gguf_vocab.h"
#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// The id that a key names, or nothing where there is no such key.
std::optional<std::int64_t> token_id(const GgufFile& file, const GgufVocab& vocab, std::string_view name) {
  const std::string key = std::string(kPrefix) + std::string(name);
  if (!file.has(key)) return std::nullopt;
  const std::int64_t id = file.integer(key);
  if (id < 0 || id >= vocab.size() || !vocab.used(id))
    fail_input("{}: the key {} is {}, which is no token of this vocabulary", file.path(), quote(key), id);
  return id;
}

bool flag(const GgufFile& file, std::string_view name, bool fallback) {
  const std::string key = std::string(kPrefix) + std::string(name);
  return file.has(key) ? file.boolean(key) : fallback;
}

Json added_tokens(const GgufVocab& vocab) {
  Json list = Json::array();
  for (std::int64_t id = 0; id < vocab.size(); ++id) {
    const TokenKind kind = vocab.kind(id);
    if (kind != TokenKind::control && kind != TokenKind::user && kind != TokenKind::unknown) continue;
    list.push_back({{"id", id},
                    {"content", vocab.text(id)},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", kind != TokenKind::user}});
  }
  return list;
}

// Puts the tokens that begin and end a text around it; null where there are none.
Json post_processor(const GgufVocab& vocab, std::optional<std::int64_t> begin,
                    std::optional<std::int64_t> end) {
  if (!begin && !end) return nullptr;
  Json special = Json::object();
  const auto token = [&](std::int64_t id, int segment) -> Json {
    const std::string text(vocab.text(id));
    special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    return {{"SpecialToken", {{"id", text}, {"type_id", segment}}}};
  };
  Json single = Json::array(), pair = Json::array();
  for (int segment = 0; segment < 2; ++segment) {
    Json part = Json::array();
    if (begin) part.push_back(token(*begin, segment));
    part.push_back({{"Sequence", {{"id", segment ? "B" : "A"}, {"type_id", segment}}}});
    if (end) part.push_back(token(*end, segment));
    if (segment == 0) single = part;
    pair.insert(pair.end(), part.begin(), part.end());
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

}  // namespace

GgufTokenizer read_gguf_tokenizer(const GgufFile& file, std::int64_t rows, std::int64_t context) {
  const GgufVocab vocab(file, rows);
  const std::string_view kind = file.string("tokenizer.ggml.model");
  Json tokenizer;
  bool begins = false;
  if (kind == "gpt2") {
    tokenizer = byte_level_bpe(file, vocab);
    begins = file.string("tokenizer.ggml.pre") == "llama-bpe";
  } else if (kind == "llama") {
    tokenizer = sentencepiece_bpe(file, vocab);
    begins = true;
  } else {
    fail(ErrorKind::unsupported,
         "{}: the tokenizer model {} is not supported; halfbyte imports gpt2 and llama", file.path(),
         quote(kind));
  }

  const auto begin = token_id(file, vocab, "bos_token_id"), end = token_id(file, vocab, "eos_token_id");
  const auto unknown = token_id(file, vocab, "unknown_token_id"),
             pad = token_id(file, vocab, "padding_token_id");
  const bool add_begin = flag(file, "add_bos_token", begins), add_end = flag(file, "add_eos_token", false);
  if ((add_begin && !begin) || (add_end && !end))
    fail_input("{}: adds a token at the {} of each text, but names none", file.path(),
               add_begin && !begin ? "start" : "end");
  tokenizer["version"] = "1.0";
  tokenizer["truncation"] = nullptr;
  tokenizer["padding"] = nullptr;
  tokenizer["added_tokens"] = added_tokens(vocab);
  tokenizer["post_processor"] =
      post_processor(vocab, add_begin ? begin : std::nullopt, add_end ? end : std::nullopt);

  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"model_max_length", context},
                 {"clean_up_tokenization_spaces", false}};
  Json generation = Json::object();
  const auto set = [&](const char* name, std::optional<std::int64_t> id, bool generates) {
    if (!id) return;
    config[std::string(name) + "_token"] = vocab.text(*id);
    if (generates) generation[std::string(name) + "_token_id"] = *id;
  };
  set("bos", begin, true);
  set("eos", end, true);
  set("unk", unknown, false);
  set("pad", pad, true);
  // Chat models end a turn with a token of its own.
  std::vector<std::int64_t> ends;
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const auto id = token_id(file, vocab, name); id && std::ranges::find(ends, *id) == ends.end())
      ends.push_back(*id);
  if (ends.size() > 1) generation["eos_token_id"] = ends;

  if (file.has("tokenizer.chat_template")) {
    const std::string_view text = file.string("tokenizer.chat_template");
    if (!is_utf8(text)) fail_input("{}: the chat template is not UTF-8", file.path());
    config["chat_template"] = text;
  }
  return {dump_json(tokenizer, -1), dump_json(config), dump_json(generation), begin, end, pad};
}

}  // namespace halfbyte
