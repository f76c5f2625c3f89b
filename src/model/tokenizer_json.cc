// tokenizer.json of the tokenizers package: added tokens, normalizer, pre-tokenizer, BPE, template, decoder in a row.
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"
#include "model/bpe.h"
#include "model/pretokenizer.h"
#include "model/tokenizer_added.h"
#include "model/tokenizer_backend.h"
#include "model/tokenizer_decoder.h"
#include "model/tokenizer_normalizer.h"

namespace halfbyte {

namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{256} << 20;
constexpr std::size_t kCachedWords = 1 << 16;
constexpr std::size_t kCachedWordBytes = 128;

// Token ids put before and after a text.
struct Frame {
  std::vector<std::int32_t> before, after;
};

class JsonTokenizer final : public TokenizerBackend {
 public:
  JsonTokenizer(const Json& json, const std::string& file, const TokenizerConfig& config) : file_(file) {
    if (!json.is_object()) fail_input("{}: must be a JSON object", file);
    const auto part = [&](const char* key) { return json.value(key, Json()); };
    bpe_ = Bpe::from_json(json_object(json, "model", file), file);
    normalizer_ = Normalizer::from_json(part("normalizer"), file);
    pre_tokenizers_ = PreTokenizers::from_json(part("pre_tokenizer"), file);
    decoder_ = TokenDecoder::from_json(part("decoder"), file);
    if (const Json* tokens = json_find(json, "added_tokens")) read_added(*tokens);
    if (const Json* post = json_find(json, "post_processor")) read_post_processor(*post);
    if (frame_.before.empty() && frame_.after.empty()) frame_from(config);
  }

  std::int32_t vocab_size() const override { return bpe_.size() + static_cast<std::int32_t>(beyond_.size()); }

  std::string token_of(std::int32_t id) const override {
    return id < bpe_.size() ? bpe_.token(id) : beyond_[static_cast<std::size_t>(id - bpe_.size())];
  }

  std::optional<std::int32_t> id_of(std::string_view token) const override {
    if (const auto added = added_ids_.find(std::string(token)); added != added_ids_.end())
      return added->second;
    return bpe_.id_of(token);
  }

  bool is_special(std::int32_t id) const override { return special_.contains(id); }

  std::vector<std::int32_t> encode(std::string_view text, bool add_special) const override {
    std::vector<std::int32_t> ids;
    if (add_special) ids = frame_.before;
    Cache cache;
    const auto found = [&](std::int32_t id) { ids.push_back(id); };
    raw_tokens_.split(
        text,
        [&](std::string_view plain) {
          const bool first = plain.data() == text.data();
          const std::string normal = normalizer_.empty() ? std::string() : normalizer_(plain);
          const std::string_view whole = normalizer_.empty() ? plain : std::string_view(normal);
          normalized_tokens_.split(
              whole,
              [&](std::string_view part) {
                pre_tokenizers_.run({part, first && part.data() == whole.data()},
                                    [&](Piece word) { encode_word(word.text, cache, ids); });
              },
              found);
        },
        found);
    if (add_special) ids.insert(ids.end(), frame_.after.begin(), frame_.after.end());
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const override {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (std::int32_t id : ids)
      if (!skip_special || !is_special(id)) tokens.push_back(decoded_form(id));
    return decoder_.decode(std::move(tokens));
  }

  std::optional<std::string> bytes_of(std::int32_t id) const override {
    if (!decoder_.is_byte_level()) return std::nullopt;
    return characters_to_bytes(decoded_form(id));
  }

  std::optional<char> byte_of(std::int32_t id) const override {
    return decoder_.has_byte_fallback() ? named_byte(decoded_form(id)) : std::nullopt;
  }

 private:
  using Cache = std::unordered_map<std::string, std::vector<std::int32_t>>;

  void encode_word(std::string_view word, Cache& cache, std::vector<std::int32_t>& ids) const {
    if (word.size() > kCachedWordBytes) return bpe_.encode(word, ids);
    std::string key(word);
    auto place = cache.find(key);
    if (place == cache.end()) {
      std::vector<std::int32_t> own;
      bpe_.encode(word, own);
      if (cache.size() >= kCachedWords) cache.clear();
      place = cache.emplace(std::move(key), std::move(own)).first;
    }
    ids.insert(ids.end(), place->second.begin(), place->second.end());
  }

  // A token that is looked for in its normalized form is decoded from that form.
  std::string decoded_form(std::int32_t id) const {
    const auto normal = normalized_forms_.find(id);
    return normal != normalized_forms_.end() ? normal->second : token_of(id);
  }

  void read_added(const Json& tokens) {
    const std::string where = file_ + ": added_tokens";
    if (!tokens.is_array()) fail_input("{} must be an array", where);
    std::unordered_set<std::string> special;
    for (const Json& entry : tokens) {
      AddedToken token = read_added_token(entry, where);
      const std::int64_t id = json_int64(entry, "id", where);
      const std::int32_t expected = bpe_.id_of(token.content).value_or(vocab_size());
      if (added_ids_.contains(token.content))
        fail_input("{}: token {} stands twice", where, quote(token.content));
      if (id != expected)
        fail_input("{}: token {} has the id {}, expected {} ({})", where, quote(token.content), id, expected,
                   expected < bpe_.size() ? "its id in the model's vocabulary" : "ids go on without gaps");
      token.id = expected;
      if (expected >= bpe_.size()) beyond_.push_back(token.content);
      added_ids_.emplace(token.content, token.id);
      if (token.special) special.insert(token.content);
      if (!token.normalized) {
        raw_tokens_.add(token.content, token);
        continue;
      }
      std::string normal = normalizer_(token.content);
      normalized_tokens_.add(normal, token);
      if (normal != token.content) normalized_forms_.emplace(token.id, std::move(normal));
    }
    for (const auto& [content, id] : added_ids_)
      if (special.contains(decoded_form(id))) special_.insert(id);
  }

  void read_post_processor(const Json& value) {
    const std::string where = file_ + ": post_processor";
    const std::string type = json_string(value, "type", where);
    if (type == "Sequence") {
      for (const Json& step : json_array(value, "processors", where)) read_post_processor(step);
    } else if (type == "TemplateProcessing") {
      read_template(value, where);
    } else if (type != "ByteLevel") {  // ByteLevel corrects offsets only
      fail(ErrorKind::unsupported,
           "{} of type {} is not supported; halfbyte knows ByteLevel, Sequence and "
           "TemplateProcessing",
           where, quote(type));
    }
  }

  void read_template(const Json& value, const std::string& where) {
    Frame inner;
    bool text_seen = false;
    for (const Json& piece : json_array(value, "single", where)) {
      if (json_find(piece, "Sequence")) {
        const std::string name = json_string(json_object(piece, "Sequence", where), "id", where);
        if (name != "A" || text_seen)
          fail(ErrorKind::unsupported, "{}: the template of one text must hold sequence A once", where);
        text_seen = true;
        continue;
      }
      const std::string name = json_string(json_object(piece, "SpecialToken", where), "id", where);
      const Json& token = json_object(json_object(value, "special_tokens", where), name, where);
      for (const Json& id : json_array(token, "ids", where)) {
        if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab_size()))
          fail_input("{}: token {} has the id {}, outside the vocabulary of {} tokens", where, quote(name),
                     id.dump(), vocab_size());
        (text_seen ? inner.after : inner.before).push_back(id.get<std::int32_t>());
      }
    }
    if (!text_seen) fail_input("{}: the template of one text does not hold sequence A", where);
    frame_.before.insert(frame_.before.begin(), inner.before.begin(), inner.before.end());
    frame_.after.insert(frame_.after.end(), inner.after.begin(), inner.after.end());
  }

  void frame_from(const TokenizerConfig& config) {
    const auto add = [&](const std::optional<bool>& wanted, const std::optional<std::string>& token,
                         std::vector<std::int32_t>& to) {
      if (!wanted.value_or(false) || !token) return;
      if (const auto id = id_of(*token)) to.push_back(*id);
    };
    add(config.add_bos_token, config.bos_token, frame_.before);
    add(config.add_eos_token, config.eos_token, frame_.after);
  }

  std::string file_;
  Bpe bpe_;
  Normalizer normalizer_;
  PreTokenizers pre_tokenizers_;
  TokenDecoder decoder_;
  std::vector<std::string> beyond_;  // added tokens with ids behind the model's
  std::unordered_map<std::string, std::int32_t> added_ids_;
  std::unordered_map<std::int32_t, std::string> normalized_forms_;
  std::unordered_set<std::int32_t> special_;
  AddedTokenFinder raw_tokens_, normalized_tokens_;
  Frame frame_;
};

}  // namespace

std::unique_ptr<const TokenizerBackend> load_json_tokenizer(const std::filesystem::path& file,
                                                            const TokenizerConfig& config) {
  return std::make_unique<JsonTokenizer>(read_json_file(file, kMaxFileBytes), file.string(), config);
}

}  // namespace halfbyte
