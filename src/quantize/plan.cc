#include "quantize/plan.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

std::string_view kind_of(const std::string& name, const Shape& shape) {
  if (name.find("embed") != std::string::npos) return "embedding";
  if (shape.size() < 2) return name.ends_with(".bias") ? "bias" : "norm";
  return "not a linear layer of this model";
}

bool is_linear(const std::string& tensor, const std::string& linear) {
  return tensor.size() == linear.size() + 7 && tensor.starts_with(linear) && tensor.ends_with(".weight");
}

constexpr std::array<std::string_view, 3> kOrders{"natural", "absmax", "rising"};
constexpr std::array<std::string_view, 3> kRoundings{"nearest", "search", "feedback"};

}  // namespace

std::string_view column_order_name(ColumnOrder order) { return kOrders[static_cast<std::size_t>(order)]; }

std::optional<ColumnOrder> find_column_order(std::string_view name) {
  const auto found = std::ranges::find(kOrders, name);
  if (found == kOrders.end()) return std::nullopt;
  return static_cast<ColumnOrder>(found - kOrders.begin());
}

std::string_view rounding_name(Rounding rounding) { return kRoundings[static_cast<std::size_t>(rounding)]; }

std::optional<Rounding> find_rounding(std::string_view name) {
  const auto found = std::ranges::find(kRoundings, name);
  if (found == kRoundings.end()) return std::nullopt;
  return static_cast<Rounding>(found - kRoundings.begin());
}

const PlannedInput* find_input(const QuantizePlan& plan, std::string_view name) {
  const auto found = std::ranges::find(plan.inputs, name, &PlannedInput::name);
  return found == plan.inputs.end() ? nullptr : &*found;
}

PlannedInput* find_input(QuantizePlan& plan, std::string_view name) {
  return const_cast<PlannedInput*>(find_input(std::as_const(plan), name));
}

bool matches_linear(std::string pattern, const std::string& linear) {
  if (pattern.ends_with(".weight")) pattern.resize(pattern.size() - 7);
  if (pattern.find_first_of("*?") != std::string::npos)
    return fnmatch(pattern.c_str(), linear.c_str(), 0) == 0;
  // Whole dotted parts only: "layers.1" is not in "layers.12".
  return ("." + linear + ".").find("." + pattern + ".") != std::string::npos;
}

QuantizePlan make_plan(const Checkpoint& checkpoint, std::span<const std::string> linears,
                       const PlanOptions& options) {
  if (checkpoint.quantized())
    fail_input("{}: the model is quantized already; quantize the original, each rounding adds to the loss",
               checkpoint.dir().string());
  validate(options.weights);
  if (options.activations) validate(options.activations->spec);
  for (const FormatRule& rule : options.rules) {
    validate(rule.weights);
    if (rule.activations) validate(rule.activations->spec);
    if (std::ranges::none_of(linears,
                             [&](const std::string& name) { return matches_linear(rule.pattern, name); }))
      fail_input("--layer-format {} matches no linear layer of {}; \"halfbyte inspect\" lists the names",
                 quote(rule.pattern), checkpoint.dir().string());
  }
  for (const std::string& pattern : options.keep) {
    const bool used = std::any_of(linears.begin(), linears.end(),
                                  [&](const std::string& name) { return matches_linear(pattern, name); });
    if (!used && pattern != "lm_head")
      fail_input("--keep {} matches no linear layer of {}; \"halfbyte inspect\" lists the names",
                 quote(pattern), checkpoint.dir().string());
  }

  QuantizePlan plan;
  plan.activations = options.activations;
  bool any = false;
  for (const std::string& name : checkpoint.names()) {
    PlannedTensor tensor;
    tensor.name = name;
    const Shape shape = checkpoint.shape(name);
    const auto linear =
        std::ranges::find_if(linears, [&](const std::string& l) { return is_linear(name, l); });
    if (linear == linears.end()) {
      tensor.reason = kind_of(name, shape);
    } else if (std::ranges::any_of(options.keep,
                                   [&](const std::string& p) { return matches_linear(p, *linear); })) {
      tensor.reason = "kept as asked (--keep)";
    } else {
      FormatRule format{{}, options.weights, options.activations};
      for (const FormatRule& rule : options.rules)
        if (matches_linear(rule.pattern, *linear)) format = rule;
      if (format.weights.format == Format::bf16) {
        tensor.reason = "format bf16";
      } else {
        tensor.spec = format.weights;
        tensor.activations = format.activations;
        any = true;
      }
    }
    plan.tensors.push_back(std::move(tensor));
  }
  if (!any && options.weights.format != Format::bf16)
    fail_input("{}: no linear layer is left to quantize", checkpoint.dir().string());
  return plan;
}

std::vector<InputGroup> group_by_input(const Checkpoint& checkpoint, QuantizePlan& plan,
                                       std::span<const LinearSource> linears,
                                       const std::function<bool(const PlannedTensor&)>& filter) {
  std::vector<InputGroup> groups;
  std::vector<std::string> other;  // inputs that also something else reads
  for (const LinearSource& linear : linears) {
    const auto tensor = std::ranges::find(plan.tensors, linear.name + ".weight", &PlannedTensor::name);
    if (tensor == plan.tensors.end() || !tensor->spec || (filter && !filter(*tensor))) {
      other.push_back(linear.input);
      continue;
    }
    const Shape shape = checkpoint.shape(tensor->name);
    if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1)
      fail_input("{}: {} has shape {}, expected rows and columns", checkpoint.files().path(),
                 quote(tensor->name), to_string(shape));
    auto group = std::ranges::find(groups, linear.input, &InputGroup::input);
    if (group == groups.end()) {
      groups.push_back({linear.input, shape[1], {}});
      group = groups.end() - 1;
    }
    if (group->channels != shape[1])
      fail_input("{}: {} has {} columns, but another linear that reads the same has {}",
                 checkpoint.files().path(), quote(tensor->name), shape[1], group->channels);
    group->tensors.push_back(&*tensor);
  }
  for (InputGroup& group : groups) group.all = std::ranges::find(other, group.input) == other.end();
  return groups;
}

void set_columns(PlannedInput& input, std::int64_t block) {
  InputInfo& info = input.transform.info;
  std::vector<std::int32_t>& columns = input.transform.columns;
  const auto first = input.ranking.begin();
  const std::int64_t last = std::max(info.residual, info.outliers);
  columns.clear();
  switch (input.order) {
    case ColumnOrder::natural:
      columns.resize(static_cast<std::size_t>(info.channels));
      std::iota(columns.begin(), columns.end(), 0);
      break;
    case ColumnOrder::falling:
      columns = input.ranking;
      break;
    case ColumnOrder::rising:
      columns.assign(input.ranking.rbegin(), input.ranking.rend());
      break;
  }
  if (info.outliers)  // they move to the end; residual ones are there twice
    std::erase_if(columns, [&](std::int32_t channel) {
      return std::find(first, first + last, channel) != first + last;
    });
  else
    columns.resize(static_cast<std::size_t>(round_up(info.channels, block)), -1);
  columns.insert(columns.end(), first, first + last);
  info.width = static_cast<std::int64_t>(columns.size());
  info.gathered = true;
}

std::int64_t common_block(const InputGroup& group) {
  std::int64_t block = 1;
  for (const PlannedTensor* tensor : group.tensors) {
    block = std::lcm(block, effective_block(*tensor->spec, group.channels));
    if (tensor->activations)
      block = std::lcm(block, effective_block(tensor->activations->spec, group.channels));
  }
  return block;
}

void share_weight_scales(const Checkpoint& checkpoint, QuantizePlan& plan,
                         std::span<const LinearSource> linears) {
  const auto nvfp4 = [](const PlannedTensor& tensor) { return tensor.spec->format == Format::nvfp4; };
  for (const InputGroup& group : group_by_input(checkpoint, plan, linears, nvfp4)) {
    const bool alike = std::ranges::all_of(
        group.tensors, [&](const PlannedTensor* tensor) { return *tensor->spec == *group.tensors[0]->spec; });
    if (group.tensors.size() < 2 || !alike) continue;
    for (PlannedTensor* tensor : group.tensors) tensor->scale_group = group.input;
  }
}

}  // namespace halfbyte
