// Sections on where results come from: bytes by precision, times, options and checksums, commands that make them again.
#include <fmt/core.h>

#include <algorithm>

#include "report/escape.h"
#include "report/report.h"

namespace halfbyte {

namespace {

std::string command_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

void add_bytes(const ReportInputs& inputs, Document& document) {
  if (inputs.checkpoints.empty()) return;
  Chart chart{.kind = Chart::Kind::stacked,
              .title = "Bytes of each checkpoint",
              .x_label = "checkpoint",
              .y_label = "MB",
              .categories = {},
              .series = {}};
  Table table{.caption = "",
              .columns = {{"checkpoint", false},
                          {"precision", false},
                          {"tensors"},
                          {"elements"},
                          {"bytes"},
                          {"bits/element"}},
              .rows = {}};
  for (std::size_t i = 0; i < inputs.checkpoints.size(); ++i) {
    const CheckpointCard& card = inputs.checkpoints[i];
    chart.categories.push_back(short_name(card.dir));
    for (const PrecisionRow& row : card.precisions) {
      auto series = std::ranges::find(chart.series, row.name, &Series::name);
      if (series == chart.series.end()) {
        chart.series.push_back({row.name, std::vector<std::optional<double>>(inputs.checkpoints.size())});
        series = chart.series.end() - 1;
      }
      series->y[i] = 1e-6 * static_cast<double>(row.bytes);
      table.rows.push_back({short_name(card.dir), row.name, std::to_string(row.tensors),
                            std::to_string(row.elements), std::to_string(row.bytes),
                            row.elements ? fmt::format("{:.3f}", 8.0 * static_cast<double>(row.bytes) /
                                                                     static_cast<double>(row.elements))
                                         : "-"});
    }
  }
  document.sections.push_back({"bytes", "Bytes by precision", {std::move(chart), std::move(table)}});
}

void add_times(const ReportInputs& inputs, Document& document) {
  if (inputs.evals.empty()) return;
  Table table{.caption = "",
              .columns = {{"model", false}, {"scored with", false}, {"seconds"}, {"threads"}, {"tokens/s"}},
              .rows = {}};
  Chart chart{.kind = Chart::Kind::bar,
              .title = "Seconds of scoring",
              .x_label = "model",
              .y_label = "seconds",
              .categories = {},
              .series = {{"seconds", {}}}};
  for (const EvalRow& row : inputs.evals) {
    table.rows.push_back(
        {short_name(row.model), row.reference ? "its reference" : "nothing else",
         fmt::format("{:.1f}", row.seconds), row.threads ? std::to_string(*row.threads) : "-",
         row.seconds > 0 ? fmt::format("{:.0f}", static_cast<double>(row.tokens) / row.seconds) : "-"});
    chart.categories.push_back(short_name(row.model));
    chart.series[0].y.push_back(row.seconds);
  }
  document.sections.push_back({"times", "Times", {std::move(chart), std::move(table)}});
}

void add_options(const ReportInputs& inputs, Document& document) {
  if (inputs.checkpoints.empty()) return;
  Table options{.caption = "", .columns = {{"option", false}}, .rows = {}};
  Table sums{.caption = "SHA-256",
             .columns = {{"checkpoint", false}, {"of", false}, {"checksum", false}},
             .rows = {}};
  const std::size_t count = inputs.checkpoints.size();
  const auto set = [&](const std::string& name, std::size_t i, const std::string& value) {
    auto row = std::ranges::find_if(options.rows, [&](const auto& r) { return r[0] == name; });
    if (row == options.rows.end()) {
      options.rows.emplace_back(1 + count, "-");
      row = options.rows.end() - 1;
      row->front() = name;
    }
    (*row)[1 + i] = value;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const CheckpointCard& card = inputs.checkpoints[i];
    options.columns.push_back({short_name(card.dir), false});
    set("weights", i, card.weights);
    set("activations", i, card.activations);
    set("bits a weight", i, fmt::format("{:.3f}", card.bits_per_weight));
    if (!card.tool.empty()) set("made by", i, card.tool);
    for (const auto& [name, value] : card.options) set("--" + name, i, value);
    for (const auto& [name, sum] : card.checksums) sums.rows.push_back({short_name(card.dir), name, sum});
  }
  Section section{"options", "Options and checksums", {std::move(options)}};
  if (!sums.rows.empty()) section.blocks.emplace_back(std::move(sums));
  document.sections.push_back(std::move(section));
}

// Nothing where the checkpoint does not say how it was made. The model is known by its checksum only.
std::vector<std::string> quantize_command(const CheckpointCard& card) {
  if (card.options.empty()) return {};
  std::vector<std::string> words{"halfbyte", "quantize", "MODEL", "-o", card.dir};
  // A plan file stands for all options but those of the export.
  const auto is_option = [](const char* name) {
    return [name](const auto& option) { return option.first == name; };
  };
  const bool planned = std::ranges::any_of(card.options, is_option("plan"));
  constexpr std::string_view kBesidesPlans[] = {"plan", "export", "max-shard-size", "weights-only",
                                                "allow-rounding"};
  for (const auto& [name, value] : card.options) {
    if (planned && std::ranges::find(kBesidesPlans, name) == std::end(kBesidesPlans)) continue;
    words.push_back("--" + name);
    if (value != "true") words.push_back(value);  // a flag
  }
  const auto has_stats = [](const auto& sum) { return sum.first == "stats it was made of"; };
  if (!planned && std::ranges::any_of(card.checksums, has_stats))
    words.insert(words.end(), {"--stats", "stats.safetensors"});
  return words;
}

std::vector<std::string> eval_command(const EvalRow& row) {
  std::vector<std::string> words{"halfbyte",
                                 "eval",
                                 row.model,
                                 "--perplexity",
                                 row.text,
                                 "--protocol",
                                 row.protocol,
                                 "--seq-len",
                                 std::to_string(row.seq_len),
                                 "--windows",
                                 std::to_string(row.windows)};
  if (row.reference) words.insert(words.end(), {"--reference", *row.reference});
  return words;
}

void add_commands(const ReportInputs& inputs, Document& document) {
  Code code;
  const auto add = [&](const std::vector<std::string>& words) {
    const std::string line = command_line(words) + "\n";
    if (!words.empty() && code.text.find(line) == std::string::npos) code.text += line;
  };
  for (const CheckpointCard& card : inputs.checkpoints) add(quantize_command(card));
  for (const Analysis& analysis : inputs.analyses) add(analysis.command);
  for (const EvalRow& row : inputs.evals) add(eval_command(row));
  if (code.text.empty()) return;
  document.sections.push_back(
      {"reproduce",
       "How to make these results again",
       {Text{"The same inputs give the same bytes on any number of threads. MODEL and stats.safetensors are "
             "those of the checksums above; other paths are those of the runs."},
        std::move(code)}});
}

}  // namespace

void add_provenance(const ReportInputs& inputs, Document& document) {
  add_bytes(inputs, document);
  add_times(inputs, document);
  add_options(inputs, document);
  add_commands(inputs, document);
}

}  // namespace halfbyte
