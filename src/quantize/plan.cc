#include "quantize/plan.h"

#include <fnmatch.h>

#include <algorithm>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

bool matches(std::string pattern, const std::string& name) {
  if (pattern.ends_with(".weight")) pattern.resize(pattern.size() - 7);
  if (pattern.find_first_of("*?") != std::string::npos) return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  // Whole dotted parts only: "layers.1" is not in "layers.12".
  return ("." + name + ".").find("." + pattern + ".") != std::string::npos;
}

std::string_view kind_of(const std::string& name, const Shape& shape) {
  if (name.find("embed") != std::string::npos) return "embedding";
  if (shape.size() < 2) return name.ends_with(".bias") ? "bias" : "norm";
  return "not a linear layer of this model";
}

}  // namespace

QuantizePlan make_plan(const Checkpoint& checkpoint, std::span<const std::string> linears,
                       const PlanOptions& options) {
  if (checkpoint.quantized())
    fail_input("{}: the model is quantized already; quantize the original, each rounding adds to the loss",
               checkpoint.dir().string());
  validate(options.weights);
  if (options.activations) validate(options.activations->spec);
  for (const std::string& pattern : options.keep) {
    const bool used = std::any_of(linears.begin(), linears.end(),
                                  [&](const std::string& name) { return matches(pattern, name); });
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
    const auto linear = std::find_if(linears.begin(), linears.end(),
                                     [&](const std::string& l) { return l + ".weight" == name; });
    if (linear == linears.end()) {
      tensor.reason = kind_of(name, shape);
    } else if (std::any_of(options.keep.begin(), options.keep.end(),
                           [&](const std::string& p) { return matches(p, *linear); })) {
      tensor.reason = "kept as asked (--keep)";
    } else if (options.weights.format == Format::bf16) {
      tensor.reason = "format bf16";
    } else {
      tensor.spec = options.weights;
      any = true;
    }
    plan.tensors.push_back(std::move(tensor));
  }
  if (!any && options.weights.format != Format::bf16)
    fail_input("{}: no linear layer is left to quantize", checkpoint.dir().string());
  return plan;
}

std::vector<InputGroup> group_by_input(const Checkpoint& checkpoint, QuantizePlan& plan,
                                       std::span<const LinearSource> linears) {
  std::vector<InputGroup> groups;
  for (const LinearSource& linear : linears) {
    const auto tensor = std::ranges::find(plan.tensors, linear.name + ".weight", &PlannedTensor::name);
    if (tensor == plan.tensors.end() || !tensor->spec) continue;
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
  return groups;
}

}  // namespace halfbyte
