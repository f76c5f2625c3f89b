// The steps of a pre-tokenizer, each as the tokenizers package does it.
#include "model/pretokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"
#include "model/pretokenizer_regex.h"
#include "model/unicode.h"

namespace halfbyte {

namespace {

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Joins spans of a text to the pieces that a split leaves; spans is used up.
void emit(Piece piece, std::vector<Span>& spans, Behavior behavior, const PieceSink& next) {
  std::vector<Span> out;
  bool previous = false;
  const auto push = [&](const Span& span) { out.push_back({span.begin, span.end, false}); };
  switch (behavior) {
    case Behavior::removed:
      for (const Span& span : spans)
        if (!span.match) push(span);
      break;
    case Behavior::isolated:
      out.swap(spans);
      break;
    case Behavior::contiguous:
    case Behavior::merged_with_previous:
      for (const Span& span : spans) {
        const bool join = behavior == Behavior::contiguous ? span.match == previous : span.match && !previous;
        if (join && !out.empty())
          out.back().end = span.end;
        else
          push(span);
        previous = span.match;
      }
      break;
    case Behavior::merged_with_next:
      for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
        if (span->match && !previous && !out.empty())
          out.back().begin = span->begin;
        else
          push(*span);
        previous = span->match;
      }
      std::reverse(out.begin(), out.end());
  }
  for (const Span& span : out)
    if (span.end > span.begin)
      next({piece.text.substr(span.begin, span.end - span.begin), piece.at_start && span.begin == 0});
}

class SplitStep final : public PreTokenizer {
 public:
  SplitStep(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void run(Piece piece, const PieceSink& next) const override {
    std::vector<Span> spans;
    pattern_.spans(piece.text, spans);
    if (invert_)
      for (Span& span : spans) span.match = !span.match;
    emit(piece, spans, behavior_, next);
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

// One code point that Digits takes for a number.
std::string number_pattern() {
  std::string text = "[\\p{N}";
  for (const CodeRange& range : later_numbers())
    text += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<unsigned>(range.lo),
                        static_cast<unsigned>(range.hi));
  return text + "]";
}

constexpr std::string_view kWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class ByteLevelStep final : public PreTokenizer {
 public:
  ByteLevelStep(bool prefix_space, bool use_regex, std::string_view where)
      : prefix_space_(prefix_space), use_regex_(use_regex), words_(Pattern::regex(kWords, where)) {}

  void run(Piece piece, const PieceSink& next) const override {
    std::string spaced;
    if (prefix_space_ && !piece.text.starts_with(' ')) {
      spaced = ' ' + std::string(piece.text);
      piece.text = spaced;
    }
    if (!use_regex_) return next({bytes_to_characters(piece.text), piece.at_start});
    std::vector<Span> spans;
    words_.spans(piece.text, spans);
    emit(piece, spans, Behavior::isolated, [&](Piece word) {
      next({bytes_to_characters(word.text), word.at_start});
    });
  }

 private:
  bool prefix_space_, use_regex_;
  Pattern words_;
};

class MetaspaceStep final : public PreTokenizer {
 public:
  enum class Prepend { always, first, never };
  MetaspaceStep(std::string replacement, Prepend prepend, bool split, std::string_view where)
      : replacement_(replacement),
        prepend_(prepend),
        split_(split),
        mark_(Pattern::literal(replacement, where)) {}

  void run(Piece piece, const PieceSink& next) const override {
    std::string text;
    for (char c : piece.text) c == ' ' ? text += replacement_ : text += c;
    const bool wanted = prepend_ == Prepend::always || (prepend_ == Prepend::first && piece.at_start);
    if (wanted && !text.starts_with(replacement_)) text.insert(0, replacement_);
    piece.text = text;
    if (!split_) return next(piece);
    std::vector<Span> spans;
    mark_.spans(piece.text, spans);
    emit(piece, spans, Behavior::merged_with_next, next);
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool split_;
  Pattern mark_;
};

Behavior read_behavior(const Json& value, std::string_view where) {
  static constexpr std::array<std::string_view, 5> kNames = {"Removed", "Isolated", "MergedWithPrevious",
                                                             "MergedWithNext", "Contiguous"};
  const std::string name = json_string(value, "behavior", where);
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Behavior>(i);
  fail(ErrorKind::unsupported, "{}: unknown behavior {}", where, quote(name));
}

std::shared_ptr<const PreTokenizer> read_metaspace(const Json& value, std::string_view where) {
  using Prepend = MetaspaceStep::Prepend;
  const std::string replacement = json_string(value, "replacement", where);
  const std::string scheme = json_optional_string(value, "prepend_scheme", where).value_or("always");
  Prepend prepend = Prepend::always;
  if (scheme == "first")
    prepend = Prepend::first;
  else if (scheme == "never" || !json_optional_bool(value, "add_prefix_space", where).value_or(true))
    prepend = Prepend::never;
  else if (scheme != "always")
    fail(ErrorKind::unsupported, "{}: unknown prepend_scheme {}", where, quote(scheme));
  const bool split = json_optional_bool(value, "split", where).value_or(true);
  return std::make_shared<MetaspaceStep>(replacement, prepend, split, where);
}

void read_steps(const Json& value, std::string_view where,
                std::vector<std::shared_ptr<const PreTokenizer>>& steps) {
  const std::string type = json_string(value, "type", where);
  if (type == "Sequence") {
    for (const Json& step : json_array(value, "pretokenizers", where)) read_steps(step, where, steps);
  } else if (type == "ByteLevel") {
    // add_prefix_space and use_regex default to true where absent, as in the oldest files.
    steps.push_back(
        std::make_shared<ByteLevelStep>(json_optional_bool(value, "add_prefix_space", where).value_or(true),
                                        json_optional_bool(value, "use_regex", where).value_or(true), where));
  } else if (type == "Digits") {
    const bool individual = json_optional_bool(value, "individual_digits", where).value_or(false);
    steps.push_back(std::make_shared<SplitStep>(Pattern::regex(number_pattern(), where),
                                                individual ? Behavior::isolated : Behavior::contiguous,
                                                false));
  } else if (type == "Split") {
    const Behavior behavior = read_behavior(value, where);
    const bool invert = json_optional_bool(value, "invert", where).value_or(false);
    steps.push_back(std::make_shared<SplitStep>(
        Pattern::from_json(json_member(value, "pattern", where), where), behavior, invert));
  } else if (type == "Metaspace") {
    steps.push_back(read_metaspace(value, where));
  } else {
    fail(ErrorKind::unsupported,
         "{} of type {} is not supported; halfbyte knows ByteLevel, Digits, Metaspace, Sequence "
         "and Split",
         where, quote(type));
  }
}

void run_from(const std::vector<std::shared_ptr<const PreTokenizer>>& steps, std::size_t first, Piece piece,
              const PieceSink& words) {
  if (first == steps.size()) return words(piece);
  steps[first]->run(piece, [&](Piece part) { run_from(steps, first + 1, part, words); });
}

// The character of each byte, and the byte of each character below U+0144 (-1 where there is none).
struct ByteCharacters {
  std::array<char32_t, 256> of_byte{};
  std::array<std::int16_t, 0x144> of_character{};
  ByteCharacters() {
    of_character.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      of_byte[byte] = printable ? byte : next++;
      of_character[of_byte[byte]] = static_cast<std::int16_t>(byte);
    }
  }
};

const ByteCharacters& byte_characters() {
  static const ByteCharacters table;
  return table;
}

}  // namespace

PreTokenizers PreTokenizers::from_json(const Json& value, std::string_view file) {
  PreTokenizers result;
  if (!value.is_null()) read_steps(value, fmt::format("{}: pre_tokenizer", file), result.steps_);
  if (result.steps_.size() > 32)
    fail(ErrorKind::unsupported, "{}: pre_tokenizer has {} steps, at most 32 are supported", file,
         result.steps_.size());
  return result;
}

void PreTokenizers::run(Piece piece, const PieceSink& words) const {
  if (!piece.text.empty()) run_from(steps_, 0, piece, words);
}

std::string bytes_to_characters(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (char byte : bytes) append_utf8(text, byte_characters().of_byte[static_cast<unsigned char>(byte)]);
  return text;
}

std::string characters_to_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  const auto& table = byte_characters().of_character;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (c >= table.size() || table[c] < 0) return std::string(text);
    bytes += static_cast<char>(table[c]);
  }
  return bytes;
}

}  // namespace halfbyte
