// Sections from evaluations: the result tables, perplexity against bits, distance from the reference.
#include <fmt/core.h>

#include <algorithm>

#include "report/report.h"

namespace halfbyte {

namespace {

std::vector<std::vector<EvalRow>> groups_of(const std::vector<EvalRow>& evals) {
  std::vector<std::vector<EvalRow>> groups;
  for (const EvalRow& row : evals) {
    const auto group =
        std::ranges::find_if(groups, [&](const auto& rows) { return same_protocol(rows.front(), row); });
    if (group == groups.end())
      groups.push_back({row});
    else
      group->push_back(row);
  }
  return groups;
}

std::string scored_text(const EvalRow& row) {
  return fmt::format("{} tokens of {}, {} windows of {}, protocol {}", row.tokens, row.text, row.windows,
                     row.seq_len, row.protocol);
}

Chart perplexity_chart(const std::vector<EvalRow>& rows, const std::string& title) {
  Chart chart{.kind = Chart::Kind::scatter,
              .title = title,
              .x_label = "bits a weight",
              .y_label = "perplexity",
              .categories = {},
              .series = {}};
  for (const EvalRow& row : rows)
    chart.series.push_back({short_name(row.model), {row.perplexity}, {row.bits_per_weight}});
  return chart;
}

std::optional<Chart> distance_chart(const std::vector<EvalRow>& rows) {
  Chart chart{.kind = Chart::Kind::bar,
              .title = "KL divergence from the reference",
              .x_label = "model",
              .y_label = "nats a token",
              .categories = {},
              .series = {{"KL(reference || model)", {}}}};
  for (const EvalRow& row : rows) {
    if (!row.kl_mean) continue;
    chart.categories.push_back(short_name(row.model));
    chart.series[0].y.push_back(row.kl_mean);
  }
  if (chart.categories.empty()) return std::nullopt;
  return chart;
}

}  // namespace

void add_results(const ReportInputs& inputs, Document& document) {
  if (inputs.evals.empty()) return;
  const auto groups = groups_of(inputs.evals);
  Section results{"results", "Results", {}}, curves{"perplexity", "Perplexity against bits", {}};
  for (const auto& rows : groups) {
    Table table = result_table(rows);
    table.caption = scored_text(rows.front());
    results.blocks.emplace_back(std::move(table));
    curves.blocks.emplace_back(perplexity_chart(
        rows, groups.size() > 1 ? short_name(rows.front().text) : "Fewer bits, what they cost"));
    if (auto chart = distance_chart(rows)) curves.blocks.emplace_back(std::move(*chart));
  }
  results.blocks.emplace_back(
      Text{"Perplexity with its standard error over the windows; KL is the mean KL(reference || model) in "
           "nats a token and top-1 the share of predictions whose most likely token is the reference's. "
           "bits/weight counts the layers' matrices with their scales; MB is the whole checkpoint. Seconds "
           "are those of scoring, the model's own part."});
  document.sections.push_back(std::move(results));
  document.sections.push_back(std::move(curves));
}

}  // namespace halfbyte
