#include "calibrate/samples.h"

#include <nlohmann/json.hpp>
#include <random>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::int64_t kMaxSourceBytes = std::int64_t{4} << 30;

}  // namespace

SampleSet::SampleSet(std::vector<std::vector<std::int32_t>> sources, const SampleOptions& options)
    : sources_(std::move(sources)), length_(static_cast<std::size_t>(options.seq_len)) {
  if (options.samples < 1 || options.seq_len < 2)
    fail_input("{} samples of {} tokens; calibration needs at least 1 of 2", options.samples,
               options.seq_len);
  for (std::size_t s = 0; s < sources_.size(); ++s)
    for (std::size_t first = 0; first + length_ <= sources_[s].size(); first += length_)
      places_.push_back({s, first});
  if (places_.empty()) {
    std::vector<std::int32_t> all;
    for (const auto& source : sources_) all.insert(all.end(), source.begin(), source.end());
    if (all.size() < 2) fail_input("the calibration text has {} tokens; give a longer one", all.size());
    length_ = std::min(length_, all.size());
    sources_ = {std::move(all)};
    places_.push_back({0, 0});
  }
  available_ = static_cast<std::int64_t>(places_.size());
  // Fisher and Yates with a remainder: the standard fixes the generator, but not its distributions.
  std::mt19937_64 random(options.seed);
  for (std::size_t i = places_.size(); i > 1; --i) std::swap(places_[i - 1], places_[random() % i]);
  places_.resize(std::min(places_.size(), static_cast<std::size_t>(options.samples)));
}

SampleSet SampleSet::first(std::size_t count) const {
  SampleSet some = *this;
  some.places_.resize(std::min(count, some.places_.size()));
  return some;
}

std::span<const std::int32_t> SampleSet::operator[](std::size_t i) const {
  return std::span(sources_[places_[i].source]).subspan(places_[i].first, length_);
}

std::vector<std::int32_t> tokens_of_text(const std::filesystem::path& path, const Tokenizer& tokenizer) {
  const std::string text = read_text_file(path, kMaxSourceBytes);
  if (!is_utf8(text)) fail_input("{}: not UTF-8 text; convert it first", path.string());
  return tokenizer.encode(text, false);
}

std::vector<std::int32_t> tokens_of_jsonl(const std::filesystem::path& path, const std::string& field,
                                          const Tokenizer& tokenizer) {
  const std::string lines = read_text_file(path, kMaxSourceBytes);
  std::vector<std::int32_t> tokens;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line(lines.data() + begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}: line {}", path.string(), number);
    const std::string text = json_string(parse_json(line, where), field, where);
    const std::vector<std::int32_t> ids = tokenizer.encode(tokens.empty() ? text : "\n\n" + text, false);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  return tokens;
}

}  // namespace halfbyte
