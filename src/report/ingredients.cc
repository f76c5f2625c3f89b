// The section on a chain of evaluations, each with one thing more than the one before: what KL falls by at every step.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "core/fail.h"
#include "report/report.h"

namespace halfbyte {

namespace {

const CheckpointCard* card_of(const ReportInputs& inputs, const EvalRow& row) {
  const auto card = std::ranges::find_if(inputs.checkpoints, [&](const CheckpointCard& c) {
    return short_name(c.dir) == short_name(row.model);
  });
  return card == inputs.checkpoints.end() ? nullptr : &*card;
}

const std::string* option_of(const CheckpointCard& card, const std::string& name) {
  const auto option = std::ranges::find(card.options, name, &std::pair<std::string, std::string>::first);
  return option == card.options.end() ? nullptr : &option->second;
}

// "--rounding nearest -> search, --samples 16": the options in which two checkpoints differ; empty where a card is missing.
std::string changes(const CheckpointCard* before, const CheckpointCard* after) {
  if (!before || !after) return "";
  std::set<std::string> names;
  for (const CheckpointCard* card : {before, after})
    for (const auto& [name, value] : card->options) names.insert(name);
  std::string text;
  for (const std::string& name : names) {
    const std::string *from = option_of(*before, name), *to = option_of(*after, name);
    if (from && to && *from == *to) continue;
    text += fmt::format("{}--{} {}", text.empty() ? "" : ", ", name,
                        from && to ? *from + " -> " + *to
                        : to       ? *to
                                   : *from + " -> none");
  }
  return text;
}

}  // namespace

void add_ingredients(const ReportInputs& inputs, Document& document) {
  if (!inputs.chain) return;
  std::vector<const EvalRow*> steps;
  for (const EvalRow& row : inputs.evals)
    if (row.kl_mean) steps.push_back(&row);
  if (steps.size() < 2)
    fail_input(
        "--chain shows what KL falls by from one evaluation to the next, but {} of {} evaluations have a KL; "
        "give "
        "two or more made with --reference",
        steps.size(), inputs.evals.size());
  for (const EvalRow* row : steps)
    if (!same_protocol(*row, *steps.front()))
      fail_input("--chain compares evaluations of one text cut alike, but those of {} and {} differ",
                 short_name(steps.front()->model), short_name(row->model));

  Chart chart{.kind = Chart::Kind::waterfall,
              .title = "KL divergence from the reference, step by step",
              .x_label = "step",
              .y_label = "nats a token",
              .categories = {},
              .series = {{"KL(reference || model)", {}}}};
  Table table{.caption = "",
              .columns = {{"step", false}, {"KL"}, {"falls by"}, {"% of the first"}, {"perplexity"}},
              .rows = {}};
  const bool cards = std::ranges::any_of(steps, [&](const EvalRow* row) { return card_of(inputs, *row); });
  if (cards) table.columns.push_back({"what changed", false});
  const double first = *steps.front()->kl_mean;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const EvalRow& row = *steps[i];
    const double kl = *row.kl_mean, fall = i ? *steps[i - 1]->kl_mean - kl : 0;
    chart.categories.push_back(short_name(row.model));
    chart.series[0].y.push_back(kl);
    table.rows.push_back({short_name(row.model), fmt::format("{:.4f}", kl),
                          i ? fmt::format("{:.4f}", fall) : "-",
                          i && first > 0 ? fmt::format("{:.1f}", 100 * fall / first) : "-",
                          fmt::format("{:.3f}", row.perplexity)});
    if (cards)
      table.rows.back().push_back(i ? changes(card_of(inputs, *steps[i - 1]), card_of(inputs, row)) : "");
  }
  document.sections.push_back({"ingredients", "What each step gives", {std::move(chart), std::move(table)}});
}

}  // namespace halfbyte
