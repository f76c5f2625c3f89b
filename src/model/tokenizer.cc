// The front of the tokenizers: loading, checks of arguments, streaming.
#include "model/tokenizer.h"

#include <algorithm>

#include "core/fail.h"
#include "io/text.h"
#include "model/tokenizer_backend.h"
#include "model/unicode.h"

namespace halfbyte {

namespace {

std::optional<std::int32_t> id_of_token(const TokenizerBackend& backend,
                                        const std::optional<std::string>& token, std::string_view name,
                                        const std::filesystem::path& dir) {
  if (!token || token->empty()) return std::nullopt;
  const auto id = backend.id_of(*token);
  if (!id)
    fail_input("{}: {} {} is not in the vocabulary", (dir / "tokenizer_config.json").string(), name,
               quote(*token));
  return id;
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& model_dir) {
  Tokenizer tokenizer;
  tokenizer.config_ = read_tokenizer_config(model_dir);
  if (const auto json = model_dir / "tokenizer.json"; exists(json))
    tokenizer.backend_ = load_json_tokenizer(json, tokenizer.config_);
  else if (const auto model = model_dir / "tokenizer.model"; exists(model))
    tokenizer.backend_ = load_sentencepiece(model, tokenizer.config_);
  else
    fail_input("{}: holds neither tokenizer.json nor tokenizer.model", model_dir.string());
  tokenizer.bos_ = id_of_token(*tokenizer.backend_, tokenizer.config_.bos_token, "bos_token", model_dir);
  tokenizer.eos_ = id_of_token(*tokenizer.backend_, tokenizer.config_.eos_token, "eos_token", model_dir);
  return tokenizer;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  if (!is_utf8(text)) fail_input("the text to encode is not UTF-8; convert it first");
  return backend_->encode(text, add_special);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  for (std::int32_t id : ids) token_of(id);
  return backend_->decode(ids, skip_special);
}

std::int32_t Tokenizer::vocab_size() const { return backend_->vocab_size(); }

std::string Tokenizer::token_of(std::int32_t id) const {
  if (id < 0 || id >= vocab_size())
    fail_input("token id {} is outside the vocabulary of {} tokens", id, vocab_size());
  return backend_->token_of(id);
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const { return backend_->id_of(token); }

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && backend_->is_special(id);
}

std::optional<std::string> Tokenizer::chat_template(const std::string& name) const {
  const auto found = config_.chat_templates.find(name);
  if (found == config_.chat_templates.end()) return std::nullopt;
  return found->second;
}

std::string TokenStream::push(std::int32_t id) {
  tokenizer_.token_of(id);
  if (skip_special_ && tokenizer_.is_special(id)) return "";
  if (const auto bytes = tokenizer_.backend_->bytes_of(id)) {
    bytes_ += *bytes;
    const std::size_t whole = whole_characters(bytes_);
    const std::string text = utf8_lossy(std::string_view(bytes_).substr(0, whole));
    bytes_.erase(0, whole);
    return text;
  }
  ids_.push_back(id);
  if (const auto byte = tokenizer_.backend_->byte_of(id)) {
    bytes_ += *byte;
    if (whole_characters(bytes_) < bytes_.size()) return "";
  }
  bytes_.clear();
  std::string text = tokenizer_.backend_->decode(ids_, skip_special_);
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(given_));
  if (text.starts_with(given_text_))
    text.erase(0, given_text_.size());
  else
    text = tokenizer_.backend_->decode(ids_, skip_special_);
  given_ = ids_.size();
  given_text_ = tokenizer_.backend_->decode(ids_, skip_special_);
  return text;
}

std::string TokenStream::finish() {
  std::string text = utf8_lossy(bytes_);
  bytes_.clear();
  ids_.clear();
  given_ = 0;
  given_text_.clear();
  return text;
}

}  // namespace halfbyte
