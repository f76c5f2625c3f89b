#include "cli/calibration_text.h"

#include <fmt/core.h>

#include "io/mapped_file.h"
#include "io/sha256.h"
#include "model/tokenizer.h"

namespace halfbyte::cli {

std::vector<std::string> CalibrationText::paths() const {
  std::vector<std::string> all = texts;
  all.insert(all.end(), jsonls.begin(), jsonls.end());
  return all;
}

std::vector<std::string> CalibrationText::sums() const {
  std::vector<std::string> sums;
  for (const std::string& path : paths()) sums.push_back(sha256(MappedFile(path).bytes()));
  return sums;
}

SampleSet CalibrationText::samples(const std::string& model, const SampleOptions& options) const {
  const Tokenizer tokenizer = Tokenizer::load(model);
  std::vector<std::vector<std::int32_t>> sources;
  for (const std::string& path : texts) sources.push_back(tokens_of_text(path, tokenizer));
  for (const std::string& path : jsonls) sources.push_back(tokens_of_jsonl(path, field, tokenizer));
  SampleSet samples(std::move(sources), options);
  if (static_cast<std::int64_t>(samples.size()) < options.samples)
    fmt::print(stderr, "note: the text fills {} samples of {} tokens, {} were asked for\n", samples.size(),
               samples[0].size(), options.samples);
  return samples;
}

std::vector<CLI::Option*> add_calibration_text(CLI::App& command, CalibrationText& text) {
  return {command.add_option("--text", text.texts, "UTF-8 text files; sources may be mixed"),
          command.add_option("--jsonl", text.jsonls, "Files with a JSON object a line"),
          command.add_option("--field", text.field, "The member of these objects that holds the text")
              ->capture_default_str()};
}

}  // namespace halfbyte::cli
