#include "cli/bits_budget.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analyze/analysis_file.h"
#include "core/fail.h"
#include "io/text.h"
#include "quantize/bit_budget.h"

namespace halfbyte::cli {

namespace {

bool is_kept(const PlanSettings& settings, const std::string& linear) {
  return std::ranges::any_of(settings.keep,
                             [&](const std::string& pattern) { return matches_linear(pattern, linear); });
}

}  // namespace

std::vector<FormatRule> rules_of_budget(const PlanSettings& settings, std::span<const LinearSource> sources,
                                        const Checkpoint& checkpoint) {
  if (settings.analysis.empty())
    fail_input(
        "--bits-budget goes by measured errors: give --analysis FILE, which \"halfbyte analyze --formats "
        "{},mxfp8,bf16\" writes",
        settings.format);
  const Analysis analysis =
      parse_analysis(read_json_file(settings.analysis, std::int64_t{1} << 30), settings.analysis);
  std::vector<BudgetedLinear> linears;
  std::vector<std::vector<std::string>> formats;
  for (const LinearAnalysis& linear : analysis.linears) {
    if (!checkpoint.has(linear.name + ".weight"))
      fail_input("{}: is of another model, it lists {}", settings.analysis, quote(linear.name));
    if (is_kept(settings, linear.name)) continue;
    BudgetedLinear budgeted{.name = linear.name, .weights = linear.out * linear.in, .choices = {}};
    formats.emplace_back();
    for (const auto& [name, found] : linear.formats) {
      budgeted.choices.push_back(
          {found.bits, settings.activations == "bf16" ? found.error.weights : found.error.both});
      formats.back().push_back(name);
    }
    linears.push_back(std::move(budgeted));
  }
  for (const LinearSource& source : sources) {
    const bool listed = std::ranges::find(linears, source.name, &BudgetedLinear::name) != linears.end();
    if (!listed && !is_kept(settings, source.name) && checkpoint.has(source.name + ".weight"))
      fail_input("{}: says nothing of {}; analyze all layers, or leave that one alone with --keep",
                 settings.analysis, source.name);
  }
  if (analysis.formats.size() < 2)
    fail_input("{}: compares {} formats, at least two are needed; analyze with --formats {},mxfp8,bf16",
               settings.analysis, analysis.formats.size(), settings.format);
  const std::vector<std::size_t> chosen = choose_within_budget(linears, settings.bits_budget);
  std::vector<FormatRule> rules;
  for (std::size_t i = 0; i < linears.size(); ++i)
    rules.push_back(parse_rule(settings, linears[i].name + "=" + formats[i][chosen[i]]));
  return rules;
}

void check_budget(const PlanSettings& settings, const Checkpoint& checkpoint, const QuantizePlan& plan,
                  std::span<const LinearSource> sources) {
  if (!(settings.bits_budget > 0)) return;
  double bits = 0, weights = 0;
  for (const LinearSource& source : sources) {
    const auto tensor = std::ranges::find(plan.tensors, source.name + ".weight", &PlannedTensor::name);
    if (tensor == plan.tensors.end() || is_kept(settings, source.name)) continue;
    Shape shape = checkpoint.shape(tensor->name);
    const auto size = static_cast<double>(count(shape));
    weights += size;
    if (!tensor->spec) {
      bits += size * 8 * static_cast<double>(dtype_bytes(checkpoint.dtype(tensor->name)));
      continue;
    }
    const auto input = std::ranges::find(plan.inputs, tensor->input, &PlannedInput::name);
    QuantizedInfo info{.spec = *tensor->spec, .shape = std::move(shape)};
    if (input != plan.inputs.end()) {
      info.shape[1] = input->transform.info.width;
      info.outliers = input->transform.info.outliers;
      info.outlier_spec = input->transform.info.outlier_spec;
    }
    bits += 8 * static_cast<double>(stored_bytes_of(info));
  }
  // The scales' own sizes differ a little from the analysis' bits: global scales, short blocks.
  if (bits > weights * (settings.bits_budget + 0.005))
    fail_input(
        "--bits-budget is {:g} bits a weight, but the plan takes {:.3f}: what --method and --layer-format "
        "add counts "
        "too; lower the budget by the difference",
        settings.bits_budget, bits / weights);
}

}  // namespace halfbyte::cli
