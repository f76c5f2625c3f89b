// The result table of several evaluations, as aligned text and as Markdown.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace halfbyte {

// What a table needs of one eval.json.
struct EvalRow {
  std::string model, weights, activations;
  double bits_per_weight = 0, megabytes = 0, perplexity = 0, seconds = 0;
  std::optional<double> stderr_, kl_mean, top1_agreement;
  std::string text, protocol;
  std::int64_t windows = 0, seq_len = 0, tokens = 0;
};

// Throws bad_input, naming the file and the key, where it is not what eval --json writes.
EvalRow read_eval(const std::filesystem::path& file);

std::string text_table(const std::vector<EvalRow>& rows);
// A Markdown document: the table and what was scored.
std::string markdown_report(const std::vector<EvalRow>& rows);

}  // namespace halfbyte
