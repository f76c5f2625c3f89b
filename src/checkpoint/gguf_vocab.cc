// Checks of the vocabulary, and byte-level BPE.
#include "checkpoint/gguf_vocab.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

// Splitting patterns as Llama 3 and Qwen2 publish them in their tokenizer.json.
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json byte_level(bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json sequence(Json first, Json second) {
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({std::move(first), std::move(second)})}};
}

Json split(std::string_view pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

constexpr std::string_view kPreTokenizers[] = {"smollm", "gpt-2", "llama-bpe", "qwen2"};

// pre is one of kPreTokenizers.
Json pre_tokenizer(std::string_view pre) {
  if (pre == "gpt-2") return byte_level(true);
  if (pre == "smollm") return sequence({{"type", "Digits"}, {"individual_digits", true}}, byte_level(true));
  return sequence(split(pre == "qwen2" ? kQwen2Pattern : kLlama3Pattern), byte_level(false));
}

Json normalizer(std::string_view pre) {
  return pre == "qwen2" ? Json::object({{"type", "NFC"}}) : Json(nullptr);
}

bool ignores_merges(std::string_view pre) { return pre == "llama-bpe"; }

// Offsets into the text are not kept, so how they are trimmed does not matter.
void erase_offsets(Json& json) {
  if (json.is_object()) json.erase("trim_offsets");
  if (json.is_structured())
    for (Json& entry : json) erase_offsets(entry);
}

}  // namespace

GgufVocab::GgufVocab(const GgufFile& file, std::int64_t rows)
    : texts_(file.strings("tokenizer.ggml.tokens")) {
  const auto types = file.integers("tokenizer.ggml.token_type");
  if (static_cast<std::int64_t>(types.size()) != size() || size() != rows)
    fail_input("{}: has {} tokens with {} types for an embedding of {} rows, expected equal numbers",
               file.path(), size(), types.size(), rows);
  for (std::int64_t id = 0; id < size(); ++id) {
    const std::int64_t type = types[static_cast<std::size_t>(id)];
    if (type < 1 || type > 6)
      fail_input("{}: token {} has the type {}, expected 1 to 6", file.path(), id, type);
    kinds_.push_back(static_cast<TokenKind>(type));
    if (!used(id)) continue;
    if (!is_utf8(text(id))) fail_input("{}: token {}, {}, is not UTF-8", file.path(), id, quote(text(id)));
    const auto [first, added] = ids_.emplace(text(id), id);
    if (!added)
      fail_input("{}: the tokens {} and {} are both {}", file.path(), first->second, id, quote(text(id)));
  }
}

std::int64_t GgufVocab::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

Json GgufVocab::json() const {
  Json vocab = Json::object();
  for (const auto& [text, id] : ids_) vocab[std::string(text)] = id;
  return vocab;
}

Json byte_level_bpe(const GgufFile& file, const GgufVocab& vocab) {
  const std::string_view pre = file.string("tokenizer.ggml.pre");
  if (std::ranges::find(kPreTokenizers, pre) == std::end(kPreTokenizers))
    fail(ErrorKind::unsupported,
         "{}: the pre-tokenizer {} is not supported; halfbyte imports smollm, gpt-2, llama-bpe and qwen2",
         file.path(), quote(pre));
  Json merges = Json::array();
  for (const std::string_view merge : file.strings("tokenizer.ggml.merges")) {
    // "left right"; the space belongs to neither, since byte-level tokens spell a space as U+0120.
    const auto space = merge.find(' ', 1);
    if (merge.empty() || space == merge.npos || merge.find(' ', space + 1) != merge.npos)
      fail_input("{}: the merge {} is not two tokens with a space between them", file.path(), quote(merge));
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    if (vocab.find(left) < 0 || vocab.find(right) < 0 ||
        vocab.find(std::string(left) + std::string(right)) < 0)
      fail_input("{}: the merge {} joins or makes text that is no token", file.path(), quote(merge));
    merges.push_back({left, right});
  }
  const Json nothing = nullptr;
  return {
      {"normalizer", normalizer(pre)},
      {"pre_tokenizer", pre_tokenizer(pre)},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nothing},
        {"unk_token", nothing},
        {"continuing_subword_prefix", nothing},
        {"end_of_word_suffix", nothing},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", ignores_merges(pre)},
        {"vocab", vocab.json()},
        {"merges", std::move(merges)}}},
  };
}

std::optional<std::string_view> pre_tokenizer_name(const Json& tokenizer) {
  const auto member = [&](const char* key) {
    const Json* found = json_find(tokenizer, key);
    Json json = found ? *found : Json(nullptr);
    erase_offsets(json);
    return json;
  };
  const Json* model = json_find(tokenizer, "model");
  const Json* ignore = model ? json_find(*model, "ignore_merges") : nullptr;
  for (const std::string_view pre : kPreTokenizers) {
    Json splitting = pre_tokenizer(pre);
    erase_offsets(splitting);
    if (member("pre_tokenizer") == splitting && member("normalizer") == normalizer(pre) &&
        (ignore && *ignore == Json(true)) == ignores_merges(pre))
      return pre;
  }
  return std::nullopt;
}

}  // namespace halfbyte
