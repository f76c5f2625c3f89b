// tokenizer.model through libsentencepiece, with added tokens and the opening and closing tokens around it.
#include <sentencepiece_processor.h>

#include <algorithm>

#include "core/fail.h"
#include "io/file.h"
#include "io/text.h"
#include "model/tokenizer_added.h"
#include "model/tokenizer_backend.h"
#include "model/tokenizer_decoder.h"

namespace halfbyte {

namespace {

constexpr std::int64_t kMaxModelBytes = std::int64_t{64} << 20;

class SentencePieceTokenizer final : public TokenizerBackend {
 public:
  SentencePieceTokenizer(const std::filesystem::path& file, const TokenizerConfig& config)
      : file_(file.string()) {
    const auto status = pieces_.LoadFromSerializedProto(read_text_file(file, kMaxModelBytes));
    if (!status.ok() || pieces_.GetPieceSize() <= 0)
      fail_input("{}: is not a sound SentencePiece model: {}", file_, status.error_message());
    for (const AddedToken& token : config.added_tokens) add(token);
    // Llama's files open a text and do not close it unless the configuration says otherwise.
    if (config.add_bos_token.value_or(true)) frame(config.bos_token, pieces_.bos_id(), before_);
    if (config.add_eos_token.value_or(false)) frame(config.eos_token, pieces_.eos_id(), after_);
  }

  std::int32_t vocab_size() const override { return size() + static_cast<std::int32_t>(beyond_.size()); }

  std::string token_of(std::int32_t id) const override {
    return id < size() ? pieces_.IdToPiece(id) : beyond_[static_cast<std::size_t>(id - size())].content;
  }

  std::optional<std::int32_t> id_of(std::string_view token) const override {
    for (const AddedToken& added : beyond_)
      if (added.content == token) return added.id;
    const int id = pieces_.PieceToId(token);
    if (id >= 0 && id < size() && pieces_.IdToPiece(id) == token) return id;
    return std::nullopt;
  }

  bool is_special(std::int32_t id) const override {
    if (id < size()) return pieces_.IsControl(id) || pieces_.IsUnknown(id);
    return beyond_[static_cast<std::size_t>(id - size())].special;
  }

  std::vector<std::int32_t> encode(std::string_view text, bool add_special) const override {
    std::vector<std::int32_t> ids;
    if (add_special) ids = before_;
    finder_.split(
        text,
        [&](std::string_view plain) {
          std::vector<int> part;
          const auto status = pieces_.Encode(plain, &part);
          if (!status.ok())
            fail(ErrorKind::bad_input, "{}: cannot encode: {}", file_, status.error_message());
          ids.insert(ids.end(), part.begin(), part.end());
        },
        [&](std::int32_t id) { ids.push_back(id); });
    if (add_special) ids.insert(ids.end(), after_.begin(), after_.end());
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const override {
    std::string text;
    std::vector<int> run;
    const auto flush = [&] {
      std::string part;
      const auto status = pieces_.Decode(run, &part);
      if (!status.ok()) fail(ErrorKind::bad_input, "{}: cannot decode: {}", file_, status.error_message());
      text += part;
      run.clear();
    };
    for (std::int32_t id : ids) {
      if (is_special(id) && skip_special) continue;
      if (id < size() && !pieces_.IsControl(id)) {
        run.push_back(id);
        continue;
      }
      flush();
      text += token_of(id);
    }
    flush();
    return text;
  }

  std::optional<char> byte_of(std::int32_t id) const override {
    return id < size() && pieces_.IsByte(id) ? named_byte(pieces_.IdToPiece(id)) : std::nullopt;
  }

 private:
  std::int32_t size() const { return pieces_.GetPieceSize(); }

  void add(const AddedToken& token) {
    if (token.id < size()) {
      if (pieces_.IdToPiece(token.id) != token.content)
        fail_input("{}: id {} is {}, but tokenizer_config.json calls it {}", file_, token.id,
                   quote(pieces_.IdToPiece(token.id)), quote(token.content));
    } else {
      if (token.id != vocab_size())
        fail_input("{}: added token {} has the id {}, expected {} (ids go on without gaps)", file_,
                   quote(token.content), token.id, vocab_size());
      beyond_.push_back(token);
    }
    finder_.add(token.content, token);
  }

  void frame(const std::optional<std::string>& token, int otherwise, std::vector<std::int32_t>& ids) const {
    if (const auto id = token ? id_of(*token) : std::nullopt)
      ids.push_back(*id);
    else if (otherwise >= 0)
      ids.push_back(otherwise);
  }

  std::string file_;
  sentencepiece::SentencePieceProcessor pieces_;
  std::vector<AddedToken> beyond_;  // ids behind the model's, without gaps
  AddedTokenFinder finder_;
  std::vector<std::int32_t> before_, after_;
};

}  // namespace

std::unique_ptr<const TokenizerBackend> load_sentencepiece(const std::filesystem::path& file,
                                                           const TokenizerConfig& config) {
  return std::make_unique<SentencePieceTokenizer>(file, config);
}

}  // namespace halfbyte
