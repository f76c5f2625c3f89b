#include "report/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/json.h"

namespace halfbyte {

namespace {

constexpr std::array<const char*, 9> kHeaders{"model",      "weights", "activations", "bits/weight", "MB",
                                              "perplexity", "KL",      "top-1 %",     "seconds"};
using Cells = std::array<std::string, kHeaders.size()>;

Cells cells(const EvalRow& row) {
  const std::string name = std::filesystem::path(row.model).filename().string();
  return {
      name.empty() ? row.model : name,
      row.weights,
      row.activations,
      fmt::format("{:.3f}", row.bits_per_weight),
      fmt::format("{:.1f}", row.megabytes),
      fmt::format("{:.3f}", row.perplexity) + (row.stderr_ ? fmt::format(" +- {:.3f}", *row.stderr_) : ""),
      row.kl_mean ? fmt::format("{:.4f}", *row.kl_mean) : "-",
      row.top1_agreement ? fmt::format("{:.2f}", 100 * *row.top1_agreement) : "-",
      fmt::format("{:.1f}", row.seconds)};
}

// One way to lay out both tables: cells padded to their column, joined by `between`.
std::string lines(const std::vector<EvalRow>& rows, const std::string& before, const std::string& between,
                  const std::string& after, bool rule) {
  std::vector<Cells> table;
  Cells header;
  std::copy(kHeaders.begin(), kHeaders.end(), header.begin());
  table.push_back(header);
  for (const EvalRow& row : rows) table.push_back(cells(row));
  std::array<std::size_t, kHeaders.size()> widths{};
  for (const Cells& line : table)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string text;
  for (std::size_t l = 0; l < table.size(); ++l) {
    for (std::size_t i = 0; i < widths.size(); ++i)
      text += (i ? between : before) + (i < 3 ? fmt::format("{:<{}}", table[l][i], widths[i])
                                              : fmt::format("{:>{}}", table[l][i], widths[i]));
    text += after + "\n";
    if (l == 0 && rule) {
      for (std::size_t i = 0; i < widths.size(); ++i)
        text += (i ? between : before) + std::string(widths[i] - (i < 3 ? 0 : 1), '-') + (i < 3 ? "" : ":");
      text += after + "\n";
    }
  }
  return text;
}

}  // namespace

EvalRow read_eval(const std::filesystem::path& file) {
  const Json json = read_json_file(file);
  const std::string where = file.string();
  EvalRow row;
  row.model = json_string(json, "model", where);
  row.weights = json_string(json, "weights", where);
  row.activations = json_string(json, "activations", where);
  row.bits_per_weight = json_double(json, "bits_per_weight", where);
  row.megabytes = 1e-6 * json_double(json, "model_bytes", where);
  row.perplexity = json_double(json, "perplexity", where);
  row.stderr_ = json_optional_double(json, "stderr", where);
  row.seconds = json_double(json, "seconds", where);
  row.kl_mean = json_optional_double(json, "kl_mean", where);
  row.top1_agreement = json_optional_double(json, "top1_agreement", where);
  row.text = json_string(json, "text", where);
  row.protocol = json_string(json, "protocol", where);
  row.windows = json_int64(json, "windows", where);
  row.seq_len = json_int64(json, "seq_len", where);
  row.tokens = json_int64(json, "tokens", where);
  return row;
}

std::string text_table(const std::vector<EvalRow>& rows) { return lines(rows, "", "  ", "", false); }

std::string markdown_report(const std::vector<EvalRow>& rows) {
  std::string text = "# Quantized models compared\n\n" + lines(rows, "| ", " | ", " |", true);
  text +=
      "\nPerplexity with its standard error over the windows; KL is the mean KL(reference || model) in nats "
      "a token and top-1 the share of\n"
      "predictions whose most likely token is the reference's. bits/weight counts the layers' matrices with "
      "their scales; MB is the\n"
      "whole checkpoint. Seconds are those of scoring, the reference's part included.\n\n## What was "
      "scored\n\n";
  for (const EvalRow& row : rows)
    text += fmt::format("- `{}`: {} tokens of `{}`, {} windows of {}, protocol {}\n", row.model, row.tokens,
                        row.text, row.windows, row.seq_len, row.protocol);
  return text;
}

}  // namespace halfbyte
