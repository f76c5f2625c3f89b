#include "quantize/residual_budget.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/fail.h"
#include "formats/source_dtype.h"
#include "io/text.h"
#include "quantize/methods.h"

namespace halfbyte {

namespace {

// [K] sum over rows of w^2, in double, rows in order.
std::vector<double> column_squares(const TensorView& weight, ThreadPool& pool) {
  constexpr std::int64_t kColumns = 64;
  const std::int64_t rows = weight.shape[0], columns = weight.shape[1];
  std::vector<double> sums(static_cast<std::size_t>(columns));
  pool.parallel_for(ceil_div(columns, kColumns), [&](std::int64_t item) {
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t k = item * kColumns; k < std::min(columns, (item + 1) * kColumns); ++k) {
        const auto value =
            static_cast<double>(load_element(weight.dtype, weight.data.data(), n * columns + k));
        sums[static_cast<std::size_t>(k)] += value * value;
      }
  });
  return sums;
}

// Inputs whose every quantized reader has one format, and the plan's activations: the appended columns are there for all of
// them, in whole blocks of each.
std::vector<InputGroup> rounded_groups(const Checkpoint& checkpoint, QuantizePlan& plan,
                                       std::span<const LinearSource> linears) {
  std::vector<InputGroup> groups = group_by_input(checkpoint, plan, linears);
  std::erase_if(groups, [&](const InputGroup& group) {
    const QuantSpec& first = *group.tensors[0]->spec;
    return !has_row_blocks(first.format) ||
           std::ranges::any_of(group.tensors, [&](const PlannedTensor* tensor) {
             return tensor->activations != plan.activations || *tensor->spec != first;
           });
  });
  return groups;
}

}  // namespace

std::vector<ResidualScore> score_residuals(const Checkpoint& checkpoint, QuantizePlan& plan,
                                           std::span<const LinearSource> linears,
                                           const std::map<std::string, ResidualStatistics>& statistics,
                                           ThreadPool& pool) {
  std::vector<ResidualScore> scores;
  for (const InputGroup& group : rounded_groups(checkpoint, plan, linears)) {
    const ResidualStatistics& seen = statistics.at(group.input);
    const PlannedInput* planned = find_input(plan, group.input);
    ResidualScore score{.input = group.input, .share = std::vector<double>(seen.mean_square.size())};
    for (const PlannedTensor* tensor : group.tensors) {
      const std::vector<double> squares = column_squares(*checkpoint.plain(tensor->name), pool);
      checkpoint.drop(tensor->name);
      const double energy = seen.output_square.at(tensor->name) * static_cast<double>(group.tensors.size());
      for (std::size_t k = 0; k < squares.size(); ++k) {
        const double scale = planned && !planned->transform.scale.empty()
                                 ? static_cast<double>(planned->transform.scale[k])
                                 : 1.0;
        if (energy > 0) score.share[k] += squares[k] * scale * scale / energy;
      }
      score.rows += checkpoint.shape(tensor->name)[0];
    }
    for (std::size_t k = 0; k < score.share.size(); ++k)
      score.share[k] *= static_cast<double>(seen.mean_square[k]);
    scores.push_back(std::move(score));
  }
  return scores;
}

std::vector<ResidualChoice> spread_residuals(std::span<const ResidualScore> scores, double budget,
                                             std::int64_t block) {
  struct Group {
    double benefit;
    std::size_t input;
  };
  std::vector<ResidualChoice> choices(scores.size());
  std::vector<Group> groups;
  double all = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::vector<double>& share = scores[i].share;
    std::vector<std::int32_t>& ranking = choices[i].ranking;
    ranking.resize(share.size());
    std::iota(ranking.begin(), ranking.end(), 0);
    std::ranges::stable_sort(ranking, [&](std::int32_t a, std::int32_t b) {
      return share[static_cast<std::size_t>(a)] > share[static_cast<std::size_t>(b)];
    });
    const auto channels = static_cast<std::int64_t>(share.size());
    all += static_cast<double>(channels * scores[i].rows);
    for (std::int64_t first = 0; first + block <= channels / 2; first += block) {
      double sum = 0;
      for (std::int64_t j = first; j < first + block; ++j)
        sum += share[static_cast<std::size_t>(ranking[static_cast<std::size_t>(j)])];
      groups.push_back({sum / static_cast<double>(scores[i].rows), i});
    }
  }
  std::ranges::stable_sort(groups, [](const Group& a, const Group& b) { return a.benefit > b.benefit; });
  double used = 0;
  for (const Group& group : groups) {
    const double cost = static_cast<double>(block * scores[group.input].rows);
    if (used + cost > budget * all) continue;
    used += cost;
    choices[group.input].residual += block;
  }
  return choices;
}

void plan_residual_budget(const Checkpoint& checkpoint, QuantizePlan& plan,
                          std::span<const LinearSource> linears,
                          const std::map<std::string, ResidualStatistics>& statistics, double percent,
                          ThreadPool& pool) {
  if (!(percent >= 0 && percent <= 50))
    fail_input("--residual budget is {}, expected 0 to 50 percent of the weights' bytes", percent);
  const std::vector<InputGroup> groups = rounded_groups(checkpoint, plan, linears);
  std::int64_t block = 1;
  for (const InputGroup& group : groups) block = std::lcm(block, common_block(group));
  if (groups.empty() || block < 2 || block > 128)
    fail_input(
        "--residual budget needs formats with blocks of up to 128 along a row for weights and activations, "
        "alike for "
        "all that reads an input");
  const std::vector<ResidualScore> scores = score_residuals(checkpoint, plan, linears, statistics, pool);
  const std::vector<ResidualChoice> choices = spread_residuals(scores, 0.01 * percent, block);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (choices[i].residual == 0) continue;
    PlannedInput* input = find_input(plan, groups[i].input);
    if (!input)
      input = &add_input(
          plan, groups[i],
          {.name = {},
           .transform = {
               .info = {.method = "arc", .channels = groups[i].channels}, .scale = {}, .columns = {}}});
    InputInfo& info = input->transform.info;
    if (info.residual || info.outliers || info.hadamard)
      fail_input("--residual budget does not go with {} of {}", info.method, groups[i].input);
    if (!input->transform.scale.empty()) info.method += "+arc";
    info.residual = choices[i].residual;
    info.shared_scale = true;
    input->order = ColumnOrder::natural;
    input->ranking = choices[i].ranking;
    set_columns(*input, block);
  }
}

}  // namespace halfbyte
