#include "report/evals.h"

#include <fmt/core.h>

#include <filesystem>
#include <tuple>

namespace halfbyte {

EvalRow parse_eval(const Json& json, const std::string& file) {
  EvalRow row;
  row.model = json_string(json, "model", file);
  row.weights = json_string(json, "weights", file);
  row.activations = json_string(json, "activations", file);
  row.bits_per_weight = json_double(json, "bits_per_weight", file);
  row.megabytes = 1e-6 * json_double(json, "model_bytes", file);
  row.perplexity = json_double(json, "perplexity", file);
  row.stderr_ = json_optional_double(json, "stderr", file);
  row.seconds = json_double(json, "seconds", file);
  row.kl_mean = json_optional_double(json, "kl_mean", file);
  row.top1_agreement = json_optional_double(json, "top1_agreement", file);
  row.text = json_string(json, "text", file);
  row.protocol = json_string(json, "protocol", file);
  row.windows = json_int64(json, "windows", file);
  row.seq_len = json_int64(json, "seq_len", file);
  row.tokens = json_int64(json, "tokens", file);
  row.reference = json_optional_string(json, "reference", file);
  row.threads = json_optional_int64(json, "threads", file);
  return row;
}

bool same_protocol(const EvalRow& a, const EvalRow& b) {
  const auto of = [](const EvalRow& row) {
    return std::tie(row.text, row.protocol, row.windows, row.seq_len, row.tokens);
  };
  return of(a) == of(b);
}

std::string short_name(const std::string& path) {
  std::filesystem::path trimmed(path);
  if (trimmed.filename().empty()) trimmed = trimmed.parent_path();
  return trimmed.filename().empty() ? path : trimmed.filename().string();
}

Table result_table(const std::vector<EvalRow>& rows) {
  Table table{.caption = "",
              .columns = {{"model", false},
                          {"weights", false},
                          {"activations", false},
                          {"bits/weight"},
                          {"MB"},
                          {"perplexity"},
                          {"KL"},
                          {"top-1 %"},
                          {"seconds"}},
              .rows = {}};
  for (const EvalRow& row : rows)
    table.rows.push_back(
        {short_name(row.model), row.weights, row.activations, fmt::format("{:.3f}", row.bits_per_weight),
         fmt::format("{:.1f}", row.megabytes),
         fmt::format("{:.3f}", row.perplexity) + (row.stderr_ ? fmt::format(" +- {:.3f}", *row.stderr_) : ""),
         row.kl_mean ? fmt::format("{:.4f}", *row.kl_mean) : "-",
         row.top1_agreement ? fmt::format("{:.2f}", 100 * *row.top1_agreement) : "-",
         fmt::format("{:.1f}", row.seconds)});
  return table;
}

}  // namespace halfbyte
