#include "quantize/arc.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include "core/fail.h"
#include "io/text.h"
#include "quantize/methods.h"

namespace halfbyte {

namespace {

std::int64_t rule_count(std::span<const float> absmax, const ResidualRule& rule) {
  const auto channels = static_cast<std::int64_t>(absmax.size());
  switch (rule.kind) {
    case ResidualRule::Kind::tau: {
      const double limit = std::exp2(-rule.value) * static_cast<double>(*std::ranges::max_element(absmax));
      return std::ranges::count_if(absmax, [&](float a) { return static_cast<double>(a) > limit; });
    }
    case ResidualRule::Kind::energy: {
      const double limit = 0.01 * rule.value * std::accumulate(absmax.begin(), absmax.end(), 0.0);
      double sum = 0;
      std::int64_t count = 0;
      for (const std::int32_t channel : rank_by_absmax(absmax)) {
        sum += static_cast<double>(absmax[static_cast<std::size_t>(channel)]);
        if (sum > limit) break;
        ++count;
      }
      return count;
    }
    case ResidualRule::Kind::fixed:
      return std::min(channels, static_cast<std::int64_t>(rule.value));
    case ResidualRule::Kind::percent:
    case ResidualRule::Kind::budget:
      break;
  }
  return static_cast<std::int64_t>(0.01 * rule.value * static_cast<double>(channels));
}

}  // namespace

ResidualRule parse_residual_rule(std::string_view text) {
  struct Known {
    std::string_view name;
    ResidualRule rule;
    double smallest, largest;
  };
  constexpr std::array<Known, 5> kKnown{{{"tau", {ResidualRule::Kind::tau, 3}, 0, 30},
                                         {"energy", {ResidualRule::Kind::energy, 95}, 0, 100},
                                         {"fixed", {ResidualRule::Kind::fixed, 64}, 0, 1 << 24},
                                         {"percent", {ResidualRule::Kind::percent, 5}, 0, 100},
                                         {"budget", {ResidualRule::Kind::budget, 5}, 0, 50}}};
  const std::size_t equals = text.find('=');
  for (const Known& known : kKnown) {
    if (text.substr(0, equals) != known.name) continue;
    if (equals == std::string_view::npos) return known.rule;
    ResidualRule rule = known.rule;
    const std::string_view value = text.substr(equals + 1);
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), rule.value);
    if (error != std::errc() || end != value.data() + value.size() ||
        !(rule.value >= known.smallest && rule.value <= known.largest))
      fail_input("--residual {}: expected a number from {} to {} behind {}=", quote(text), known.smallest,
                 known.largest, known.name);
    return rule;
  }
  fail_input(
      "--residual is {}, expected tau=3, energy=95, fixed=64, percent=5 or budget=5 (with numbers of your "
      "own)",
      quote(text));
}

std::int64_t residual_channels(std::span<const float> absmax, const ArcOptions& options, std::int64_t block) {
  const auto channels = static_cast<std::int64_t>(absmax.size());
  const std::int64_t cap = std::min(
      {options.cap_channels,
       static_cast<std::int64_t>(0.01 * options.cap_percent * static_cast<double>(channels)), channels});
  return std::min(round_up(rule_count(absmax, options.rule), block), cap / block * block);
}

std::vector<std::int32_t> interleaved_columns(std::int64_t main, std::int64_t residual, std::int64_t block) {
  std::vector<std::int32_t> columns;
  for (std::int64_t first = 0; first < main; first += block) {
    for (std::int64_t j = first; j < first + block; ++j) columns.push_back(static_cast<std::int32_t>(j));
    if (first < residual)
      for (std::int64_t j = first; j < first + block; ++j)
        columns.push_back(static_cast<std::int32_t>(main + j));
  }
  return columns;
}

std::string residual_warning(const QuantizePlan& plan) {
  std::int64_t inputs = 0, outside = 0;
  double least = 1, most = 0;
  for (const PlannedInput& input : plan.inputs) {
    const InputInfo& info = input.transform.info;
    if (info.method != "arc") continue;
    const double share = static_cast<double>(info.residual) / static_cast<double>(info.channels);
    ++inputs;
    outside += share < kLeastResidualShare || share > kMostResidualShare;
    least = std::min(least, share);
    most = std::max(most, share);
  }
  if (!outside) return "";
  return fmt::format(
      "{} of {} inputs have residual channels outside 0.5 to 5 % of their channels (from {:.1f} to {:.1f} %)",
      outside, inputs, 100 * least, 100 * most);
}

void plan_arc(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
              const CalibrationStats& stats, const ArcOptions& options) {
  if (!(options.cap_percent >= 0 && options.cap_percent <= 100))
    fail_input("--cap-percent is {}, expected 0 to 100", options.cap_percent);
  if (options.rule.kind == ResidualRule::Kind::budget)
    fail_input(
        "--residual budget goes by calibration text and is for quantize and plan; expected tau=3, energy=95, "
        "fixed=64 or percent=5");
  if (!plan.activations)
    fail_input("--method arc corrects the rounding of activations: give --activations same or a format");
  plan.method = "arc";
  const auto groups = group_by_input(checkpoint, plan, linears, [&](const PlannedTensor& tensor) {
    return tensor.activations == plan.activations;
  });
  for (const InputGroup& group : groups) {
    const InputStats& input = stats_of(stats, group);
    const std::int64_t block = common_block(group);
    if (format_info(plan.activations->spec.format).default_block == 0 || block > 128)
      fail_input(
          "--method arc needs formats with blocks of up to 128 along a row for weights and activations, not "
          "{} and {}",
          to_string(*group.tensors[0]->spec), to_string(plan.activations->spec));
    for (const PlannedTensor* tensor : group.tensors)
      if (!has_row_blocks(tensor->spec->format))
        fail_input("--method arc needs weights with blocks along a row, not {}", to_string(*tensor->spec));
    const std::int64_t residual = residual_channels(input.absmax, options, block);
    // Sorting alone only hurts: a block's largest value is kept best, so outliers do best one to a block.
    const bool sorts_alone = options.rule.kind == ResidualRule::Kind::fixed && options.rule.value == 0;
    if (residual == 0 && !sorts_alone) continue;
    PlannedInput planned{.name = {},
                         .transform = {.info = {.method = "arc",
                                                .channels = group.channels,
                                                .residual = residual,
                                                .shared_scale = residual && options.shared_scale},
                                       .scale = {},
                                       .columns = {}},
                         .order = options.order,
                         .ranking = rank_by_absmax(input.absmax)};
    set_columns(planned, block);
    add_input(plan, group, std::move(planned));
  }
  if (const std::string warning = residual_warning(plan); !warning.empty()) plan.warnings.push_back(warning);
}

}  // namespace halfbyte
