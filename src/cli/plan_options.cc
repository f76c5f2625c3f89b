#include "cli/plan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte::cli {

namespace {

// The spec of a format under the rules given on the command line, where they apply to it.
QuantSpec make_spec(const PlanSettings& settings, Format format) {
  QuantSpec spec{.format = format};
  const FormatInfo& info = format_info(format);
  if (info.scale == ScaleKind::e4m3_and_global)
    spec.global_scale = global_scale_rule_from_name(settings.global_scale);
  if (info.scale == ScaleKind::e8m0) spec.mx_scale = mx_scale_rule_from_name(settings.mx_scale);
  return spec;
}

// Whether weights or inputs of some layer may be in a format of that name.
bool uses(const PlanSettings& settings, std::string_view format) {
  return settings.format.starts_with(format) || settings.activations.starts_with(format) ||
         settings.bits_budget > 0 ||
         std::ranges::any_of(settings.layer_formats, [&](const std::string& rule) {
           return std::string_view(rule).substr(rule.rfind('=') + 1).starts_with(format);
         });
}

}  // namespace

std::size_t choose(std::string_view option, std::string_view value,
                   std::initializer_list<std::string_view> names) {
  const auto found = std::ranges::find(names, value);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string expected;
  for (const std::string_view name : names)
    expected += (expected.empty() ? "" : name == *(names.end() - 1) ? " or " : ", ") + std::string(name);
  fail_input("{} is {}, expected {}", option, quote(value), expected);
}

QuantSpec weights_of(const PlanSettings& settings) {
  if (format_from_name(settings.format) == Format::bf16)
    fail_input("--format bf16 would change nothing; use nf4, fp4, nvfp4, mxfp4, mxfp8, int4 or int8");
  QuantSpec weights = make_spec(settings, format_from_name(settings.format));
  weights.block_size = settings.block_size;
  weights.double_quant = settings.double_quant;
  weights.four_six = settings.four_six;
  if (settings.four_six && settings.rounding != "nearest")
    fail_input("--four-six does nothing with --rounding {}, which tries both of its scales and more",
               settings.rounding);
  validate(weights);
  return weights;
}

std::optional<ActivationSpec> activations_of(const PlanSettings& settings, const QuantSpec& weights) {
  QuantSpec spec = weights;
  if (settings.activations != "same") {
    const Format format = format_from_name(settings.activations);
    if (format == Format::bf16) return std::nullopt;
    spec = make_spec(settings, format);
    if (format == Format::nvfp4) spec.four_six = settings.four_six;
  }
  if (!has_row_blocks(spec.format))
    fail_input(
        "--activations {}: {} is a format for weights only; use bf16, nvfp4, mxfp4, mxfp8, int8 or int4",
        settings.activations, format_name(spec.format));
  if (settings.activation_search && spec.format == Format::nvfp4) {
    spec.four_six = false;
    spec.scale_search = true;
    validate(spec);
  }
  return ActivationSpec{.spec = spec, .scope = *find_scope(settings.scope)};
}

bool given(const PlanSettings& settings, const std::string& option) {
  return settings.command->count(option) > 0;
}

void refuse_idle_options(const PlanSettings& settings) {
  struct Use {
    const char* option;
    std::initializer_list<std::string_view> methods;
  };
  for (const Use& use :
       {Use{"--alpha", {"smoothquant", "best"}}, Use{"--fold", {"smoothquant", "best"}},
        Use{"--smooth-by", {"smoothquant", "best"}}, Use{"--quality", {"best"}},
        Use{"--hadamard-block", {"hadamard"}}, Use{"--outliers", {"atom"}},
        Use{"--residual", {"arc", "best"}}, Use{"--residual-scale", {"arc"}}, Use{"--cap-percent", {"arc"}},
        Use{"--cap-channels", {"arc"}}, Use{"--order", {"arc", "atom"}}})
    if (given(settings, use.option) && std::ranges::find(use.methods, settings.method) == use.methods.end())
      fail_input("{} does nothing with --method {}", use.option, settings.method);
  for (const char* option : {"--alpha", "--fold"})
    if (given(settings, option) && settings.smooth_by == "none")
      fail_input("{} does nothing with --smooth-by none{}", option,
                 given(settings, "--smooth-by") ? "" : ", which best takes for weights alone");
  for (const char* option : {"--damping", "--damping-of", "--match-output"})
    if (given(settings, option) && settings.rounding != "feedback")
      fail_input("{} does nothing with --rounding {}", option, settings.rounding);
  const bool rounds_nvfp4 =
      settings.activations == "nvfp4" || (settings.activations == "same" && settings.format == "nvfp4");
  if (given(settings, "--activation-search") && !rounds_nvfp4)
    fail_input("--activation-search does nothing where activations are not rounded to nvfp4");
  if (given(settings, "--activation-scope") && settings.activations == "bf16")
    fail_input(
        "--activation-scope does nothing where activations are not rounded; give --activations same or a "
        "format");
  if (given(settings, "--analysis") && !(settings.bits_budget > 0))
    fail_input("--analysis does nothing without --bits-budget");
  for (const char* option : {"--samples", "--seq-len", "--seed"})
    if (given(settings, option) && settings.text.empty())
      fail_input("{} does nothing without --text or --jsonl", option);
  for (const char* option : {"--global-scale", "--weight-scale"})
    if (given(settings, option) && !uses(settings, "nvfp4"))
      fail_input("{} does nothing where nothing is nvfp4", option);
  if (given(settings, "--mx-scale") && !uses(settings, "mx"))
    fail_input("--mx-scale does nothing where nothing is mxfp4 or mxfp8");
}

ArcOptions arc_options(const PlanSettings& settings) {
  return {.order = choose("--order", settings.order.empty() ? "absmax" : settings.order,
                          {"absmax", "natural"}) == 0
                       ? ColumnOrder::falling
                       : ColumnOrder::natural,
          .rule = parse_residual_rule(settings.residual),
          .cap_channels = settings.cap_channels,
          .cap_percent = settings.cap_percent,
          .shared_scale = choose("--residual-scale", settings.residual_scale, {"own", "shared"}) == 1};
}

AtomOptions atom_options(const PlanSettings& settings) {
  return {.outliers = settings.outliers,
          .order = choose("--order", settings.order.empty() ? "rising" : settings.order,
                          {"rising", "natural"}) == 0
                       ? ColumnOrder::rising
                       : ColumnOrder::natural};
}

std::map<std::string, std::string> spoken(const PlanSettings& s) {
  std::map<std::string, std::string> options{{"format", s.format},
                                             {"activations", s.activations},
                                             {"method", s.method},
                                             {"keep", fmt::format("{}", fmt::join(s.keep, ","))}};
  const bool nvfp4 = uses(s, "nvfp4");
  if (s.block_size) options["block-size"] = std::to_string(s.block_size);
  if (s.double_quant) options["double-quant"] = "true";
  if (s.four_six) options["four-six"] = "true";
  if (nvfp4) options["global-scale"] = s.global_scale;
  if (nvfp4) options["weight-scale"] = s.weight_scale;
  if (uses(s, "mx")) options["mx-scale"] = s.mx_scale;
  if (s.activations != "bf16") options["activation-scope"] = s.scope;
  if (!s.layer_formats.empty()) options["layer-format"] = fmt::format("{}", fmt::join(s.layer_formats, ","));
  if (s.bits_budget > 0) {
    options["bits-budget"] = fmt::format("{:g}", s.bits_budget);
    options["analysis"] = std::filesystem::path(s.analysis).filename().string();
  }
  if (s.method == "smoothquant" || s.method == "best") {
    options["smooth-by"] = s.smooth_by;
    if (s.smooth_by != "none") {
      options["alpha"] = fmt::format("{:g}", s.alpha);
      options["fold"] = s.fold;
    }
  }
  if (s.method == "best") {
    options["quality"] = s.quality;
    options["residual"] = s.residual;
  }
  if (s.activation_search) options["activation-search"] = "true";
  if (s.rounding != "nearest") options["rounding"] = s.rounding;
  if (s.rounding == "feedback") {
    options["damping"] = fmt::format("{:g}", s.damping);
    options["damping-of"] = s.damping_of;
    options["match-output"] = fmt::format("{:g}", s.match_output);
  }
  if (!s.text.empty()) {
    options["samples"] = std::to_string(s.samples.samples);
    options["seq-len"] = std::to_string(s.samples.seq_len);
    options["seed"] = std::to_string(s.samples.seed);
  }
  if (s.method == "hadamard") options["hadamard-block"] = std::to_string(s.hadamard_block);
  if (s.method == "atom") options["outliers"] = std::to_string(s.outliers);
  if ((s.method == "arc" || s.method == "atom") && !s.order.empty()) options["order"] = s.order;
  if (s.method == "arc") {
    options["residual"] = s.residual;
    options["residual-scale"] = s.residual_scale;
    options["cap-percent"] = fmt::format("{:g}", s.cap_percent);
    options["cap-channels"] = std::to_string(s.cap_channels);
  }
  return options;
}

PlanSettings with_best(PlanSettings s) {
  if (s.method != "best") return s;
  const std::size_t quality = choose("--quality", s.quality, {"fast", "default", "max"});
  const bool weights_only = s.activations == "bf16";
  const auto unless_given = [&](const char* option, auto& value, auto best) {
    if (!given(s, option)) value = best;
  };
  // Where inputs are not rounded, smoothing costs more than it gains (docs/accuracy.md).
  unless_given("--smooth-by", s.smooth_by, weights_only ? "none" : "rms");
  unless_given("--alpha", s.alpha, weights_only ? 0.3 : 0.5);
  unless_given("--residual", s.residual, weights_only ? "none" : "budget=5");
  unless_given("--rounding", s.rounding, quality == 0 ? "search" : "feedback");
  if (s.activations == "nvfp4" || (s.activations == "same" && s.format == "nvfp4"))
    unless_given("--activation-search", s.activation_search, true);
  if (s.rounding == "feedback") {
    unless_given("--damping-of", s.damping_of, weights_only ? "mean" : "each");
    unless_given("--damping", s.damping, weights_only ? 0.01 : 0.03);
    unless_given("--match-output", s.match_output, weights_only ? 1.0 : quality == 2 ? 0.5 : 0.0);
  }
  const bool two_runs = s.rounding == "feedback" && s.match_output > 0;  // of the text through each layer
  unless_given("--samples", s.samples.samples,
               std::int64_t{quality == 0   ? 16
                            : quality == 2 ? 128
                            : two_runs     ? 40
                                           : 48});
  return s;
}

FormatRule parse_rule(const PlanSettings& settings, const std::string& text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    fail_input("--layer-format is {}, expected PATTERN=FORMAT, as in \"down_proj=mxfp8\"", quote(text));
  FormatRule rule{text.substr(0, equals), make_spec(settings, format_from_name(text.substr(equals + 1))), {}};
  if (!has_row_blocks(rule.weights.format) || settings.activations == "bf16") return rule;
  PlanSettings same = settings;
  if (format_info(rule.weights.format).bits > 4) same.activations = "same";
  rule.activations = activations_of(same, rule.weights);
  return rule;
}

void add_plan_settings(CLI::App& command, PlanSettings& s, bool with_plan) {
  s.command = &command;
  command.add_option("model", s.model, "Model directory (config.json, safetensors, tokenizer)")->required();
  CLI::Option* plan = nullptr;
  if (with_plan)
    plan = command.add_option("--plan", s.plan,
                              "Carry out this plan, which \"halfbyte plan\" wrote, instead of options");
  std::vector<CLI::Option*> options;
  const auto add = [&](const char* name, auto& value, const char* help) {
    options.push_back(command.add_option(name, value, help)->capture_default_str());
    return options.back();
  };
  add("--format", s.format, "nf4, fp4, nvfp4, mxfp4, mxfp8, mxfp8_e5m2, int4 or int8");
  add("--block-size", s.block_size, "Values that share a scale (0: the format's default)");
  options.push_back(
      command.add_flag("--double-quant", s.double_quant, "nf4, fp4: store the scales in 8 bits"));
  options.push_back(command.add_flag("--four-six", s.four_six,
                                     "nvfp4: for each block the better of a scale to 6 and one to 4"));
  add("--global-scale", s.global_scale, "nvfp4: pow2, amax, compressed-tensors or modelopt");
  add("--weight-scale", s.weight_scale,
      "nvfp4: one global scale for weights that engines fuse (q, k, v; gate, up), or each its own: fused or "
      "own");
  add("--mx-scale", s.mx_scale, "mxfp4, mxfp8: floor, ceil, rceil, even, compressed-tensors or modelopt");
  add("--activations", s.activations,
      "How engines round the inputs of these layers: bf16 (not at all), same, or a format");
  add("--activation-scope", s.scope,
      "nvfp4 activations: a global scale for a tensor, for a token, or static from --stats");
  add("--keep", s.keep, "Linear layers to leave alone: names, parts or patterns, or none")->delimiter(',');
  add("--layer-format", s.layer_formats,
      "PATTERN=FORMAT: another format for these linear layers, of 8 bits for their inputs too; the last that "
      "fits counts")
      ->delimiter(',');
  add("--bits-budget", s.bits_budget,
      "Bits a weight on average: picks a format for each linear layer by the errors in --analysis (0: no "
      "budget)")
      ->check(CLI::NonNegativeNumber);
  add("--analysis", s.analysis, "bits budget: what \"halfbyte analyze --formats\" measured");
  add("--method", s.method,
      "rtn, smoothquant, hadamard, atom, arc (residual channels) or best (docs/accuracy.md); docs/methods.md "
      "compares them");
  add("--stats", s.stats,
      "smoothquant, atom, arc, static, search: statistics that \"halfbyte calibrate\" wrote");
  add("--alpha", s.alpha, "smoothquant: share of the range that goes into the weights");
  add("--fold", s.fold,
      "smoothquant: divide in norms and other weights where possible, or at run time: all or none");
  add("--hadamard-block", s.hadamard_block,
      "hadamard: channels rotated together, a power of two (0: the largest that divides)");
  add("--outliers", s.outliers, "atom: channels that keep 8 bits");
  add("--residual", s.residual,
      "arc: which channels have residuals: tau=3, energy=95, fixed=64, percent=5, or budget=5 (percent of "
      "the weights' bytes, "
      "spread over the model where they help most; needs --text)");
  add("--order", s.order,
      "arc: columns by falling absmax, or natural; atom: rising, or natural (empty: the first)");
  add("--residual-scale", s.residual_scale,
      "arc, nvfp4: a global scale of the residuals' own, or shared with the input");
  add("--cap-percent", s.cap_percent, "arc: residual channels at most, percent of an input's")
      ->check(CLI::Range(0.0, 100.0));
  add("--cap-channels", s.cap_channels, "arc: residual channels at most")->check(CLI::NonNegativeNumber);
  add("--smooth-by", s.smooth_by,
      "smoothquant: what decides the factors, absmax or rms (root mean square); best: also none");
  add("--rounding", s.rounding,
      "How weights are rounded: nearest, search (scales of least error on --stats or --text) or feedback "
      "(GPTQ, "
      "needs --text)");
  options.push_back(command.add_flag("--activation-search,!--no-activation-search", s.activation_search,
                                     "nvfp4 activations: for each block the best of nine scales"));
  add("--damping", s.damping, "feedback: added to the second moments, as a share");
  add("--damping-of", s.damping_of,
      "feedback: a share of each second moment, or of their mean: each or mean");
  add("--match-output", s.match_output,
      "feedback: how far weights first move to what repairs the outputs that came before, 0 to 1");
  add("--quality", s.quality, "best: fast (no error feedback), default or max");
  add("--samples", s.samples.samples, "Samples of the text (best: 16, 40 or 48, 128 by quality)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32));
  add("--seq-len", s.samples.seq_len, "Tokens a sample")->check(CLI::Range(2, 1 << 20));
  add("--seed", s.samples.seed, "Of the shuffle that picks the samples")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  if (plan)
    for (CLI::Option* option : options) plan->excludes(option);
  add_calibration_text(command, s.text);
}

}  // namespace halfbyte::cli
