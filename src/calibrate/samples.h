// Text into the token windows that calibration runs over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/tokenizer.h"

namespace halfbyte {

struct SampleOptions {
  std::int64_t samples = 512, seq_len = 2048;
  std::uint64_t seed = 0;
};

// Windows of the sources, all of one length, in the order they are run.
class SampleSet {
 public:
  // Each source is tokenized by itself (no BOS) and cut into whole windows, the rest dropped; a source shorter than a
  // window gives none. Of all windows, shuffled by the seed, the first `samples` are kept. Where no source fills a
  // window, all of them together, one after the other, make up the single window. Throws bad_input for fewer than two
  // tokens.
  SampleSet(std::vector<std::vector<std::int32_t>> sources, const SampleOptions& options);

  // The first ones of these: what a choice of so many would have been.
  SampleSet first(std::size_t count) const;

  std::size_t size() const { return places_.size(); }
  std::int64_t available() const { return available_; }  // windows before the choice
  std::span<const std::int32_t> operator[](std::size_t i) const;

 private:
  struct Place {
    std::size_t source = 0, first = 0;
  };
  std::vector<std::vector<std::int32_t>> sources_;
  std::vector<Place> places_;
  std::size_t length_ = 0;
  std::int64_t available_ = 0;
};

// The tokens of a UTF-8 text file.
std::vector<std::int32_t> tokens_of_text(const std::filesystem::path& path, const Tokenizer& tokenizer);

// The tokens of the member `field` of every line of a JSON lines file, the texts joined by two newlines. Throws
// bad_input naming the line that is no object or lacks the text.
std::vector<std::int32_t> tokens_of_jsonl(const std::filesystem::path& path, const std::string& field,
                                          const Tokenizer& tokenizer);

}  // namespace halfbyte
