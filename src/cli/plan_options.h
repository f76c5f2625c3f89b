// How a model is to be quantized, on the command line: the options that plan and quantize share.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/calibration_text.h"
#include "quantize/arc.h"
#include "quantize/atom.h"
#include "quantize/plan.h"

namespace halfbyte::cli {

struct PlanSettings {
  const CLI::App* command = nullptr;  // that they were declared for: which of them were given
  std::string model, stats, plan;     // plan: a plan file instead of all that follows
  std::string format, activations = "bf16", global_scale = "pow2", mx_scale = "floor", scope = "tensor",
                      weight_scale = "fused";
  std::string method = "rtn", order, residual = "tau", residual_scale = "own", fold = "all", analysis;
  double alpha = 0.5, cap_percent = 10, bits_budget = 0;
  std::int64_t cap_channels = 512, hadamard_block = 0, outliers = 128, block_size = 0;
  bool double_quant = false, four_six = false, activation_search = false;
  std::string smooth_by = "absmax", rounding = "nearest", quality = "default";
  double damping = 0.01, match_output = 0;
  std::string damping_of = "each";
  CalibrationText text;
  SampleOptions samples{.samples = 32, .seq_len = 2048, .seed = 0};
  std::vector<std::string> keep{"lm_head"}, layer_formats;
};

// Declares them; with_plan: also --plan.
void add_plan_settings(CLI::App& command, PlanSettings& settings, bool with_plan);

// "PATTERN=FORMAT": that format for weights and, where activations are rounded, for them too where it has 8 bits.
FormatRule parse_rule(const PlanSettings& settings, const std::string& text);

// The value's place among the names; throws naming the option.
std::size_t choose(std::string_view option, std::string_view value,
                   std::initializer_list<std::string_view> names);

// Whether the user gave that option.
bool given(const PlanSettings& settings, const std::string& option);

// What --method best stands for, where the user has not said otherwise.
PlanSettings with_best(PlanSettings settings);

// Throws for options that would have no effect: the user meant something else.
void refuse_idle_options(const PlanSettings& settings);

QuantSpec weights_of(const PlanSettings& settings);
// The activations that go with those weights.
std::optional<ActivationSpec> activations_of(const PlanSettings& settings, const QuantSpec& weights);
ArcOptions arc_options(const PlanSettings& settings);
AtomOptions atom_options(const PlanSettings& settings);

// The settings that had a say, for people.
std::map<std::string, std::string> spoken(const PlanSettings& settings);

}  // namespace halfbyte::cli
