#include "cli/plan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "calibrate/stats_file.h"
#include "cli/bits_budget.h"
#include "core/fail.h"
#include "io/mapped_file.h"
#include "io/sha256.h"
#include "io/text.h"
#include "model/linears.h"
#include "model/model.h"
#include "quantize/arc.h"
#include "quantize/atom.h"
#include "quantize/hadamard.h"
#include "quantize/smoothquant.h"
#include "quantize/static_scales.h"

namespace halfbyte::cli {

namespace {

// The value's place among the names; throws naming the option.
std::size_t choose(std::string_view option, std::string_view value,
                   std::initializer_list<std::string_view> names) {
  const auto found = std::ranges::find(names, value);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string expected;
  for (const std::string_view name : names)
    expected += (expected.empty() ? "" : name == *(names.end() - 1) ? " or " : ", ") + std::string(name);
  fail_input("{} is {}, expected {}", option, quote(value), expected);
}

// The spec of a format under the rules given on the command line, where they apply to it.
QuantSpec make_spec(const PlanSettings& settings, Format format) {
  QuantSpec spec{.format = format};
  const FormatInfo& info = format_info(format);
  if (info.scale == ScaleKind::e4m3_and_global)
    spec.global_scale = global_scale_rule_from_name(settings.global_scale);
  if (info.scale == ScaleKind::e8m0) spec.mx_scale = mx_scale_rule_from_name(settings.mx_scale);
  return spec;
}

QuantSpec weights_of(const PlanSettings& settings) {
  if (format_from_name(settings.format) == Format::bf16)
    fail_input("--format bf16 would change nothing; use nf4, fp4, nvfp4, mxfp4, mxfp8, int4 or int8");
  QuantSpec weights = make_spec(settings, format_from_name(settings.format));
  weights.block_size = settings.block_size;
  weights.double_quant = settings.double_quant;
  weights.four_six = settings.four_six;
  validate(weights);
  return weights;
}

// The activations that go with those weights.
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
  return ActivationSpec{.spec = spec, .scope = *find_scope(settings.scope)};
}

bool given(const PlanSettings& settings, const std::string& option) {
  return settings.command->count(option) > 0;
}

// Options that would have no effect: the user meant something else.
void refuse_idle_options(const PlanSettings& settings) {
  struct Use {
    const char* option;
    std::initializer_list<std::string_view> methods;
  };
  for (const Use& use :
       {Use{"--alpha", {"smoothquant"}}, Use{"--fold", {"smoothquant"}},
        Use{"--hadamard-block", {"hadamard"}}, Use{"--outliers", {"atom"}}, Use{"--residual", {"arc"}},
        Use{"--residual-scale", {"arc"}}, Use{"--cap-percent", {"arc"}}, Use{"--cap-channels", {"arc"}},
        Use{"--order", {"arc", "atom"}}})
    if (given(settings, use.option) && std::ranges::find(use.methods, settings.method) == use.methods.end())
      fail_input("{} does nothing with --method {}", use.option, settings.method);
  if (given(settings, "--activation-scope") && settings.activations == "bf16")
    fail_input(
        "--activation-scope does nothing where activations are not rounded; give --activations same or a "
        "format");
  if (given(settings, "--analysis") && !(settings.bits_budget > 0))
    fail_input("--analysis does nothing without --bits-budget");
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

// The settings that had a say, for people.
std::map<std::string, std::string> spoken(const PlanSettings& s) {
  std::map<std::string, std::string> options{{"format", s.format},
                                             {"activations", s.activations},
                                             {"method", s.method},
                                             {"keep", fmt::format("{}", fmt::join(s.keep, ","))}};
  const bool nvfp4 = s.format == "nvfp4" || s.activations == "nvfp4";
  if (s.block_size) options["block-size"] = std::to_string(s.block_size);
  if (s.double_quant) options["double-quant"] = "true";
  if (s.four_six) options["four-six"] = "true";
  if (nvfp4) options["global-scale"] = s.global_scale;
  if (nvfp4) options["weight-scale"] = s.weight_scale;
  if (s.format.starts_with("mx") || s.activations.starts_with("mx")) options["mx-scale"] = s.mx_scale;
  if (s.activations != "bf16") options["activation-scope"] = s.scope;
  if (!s.layer_formats.empty()) options["layer-format"] = fmt::format("{}", fmt::join(s.layer_formats, ","));
  if (s.bits_budget > 0) {
    options["bits-budget"] = fmt::format("{:g}", s.bits_budget);
    options["analysis"] = std::filesystem::path(s.analysis).filename().string();
  }
  if (s.method == "smoothquant") {
    options["alpha"] = fmt::format("{:g}", s.alpha);
    options["fold"] = s.fold;
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

std::vector<LinearSource> sources_of(std::span<const LinearInfo> linears) {
  std::vector<LinearSource> sources;
  for (const LinearInfo& linear : linears)
    sources.push_back({linear.name, input_name(linear.input, linear.layer)});
  return sources;
}

Producers producers_of(const ModelConfig& config) {
  Producers producers;
  for (InputProducer& producer : list_producers(config))
    producers.emplace(producer.input, Producer{std::move(producer.tensor), std::move(producer.rows)});
  return producers;
}

QuantizePlan make(const PlanSettings& settings, const Checkpoint& checkpoint,
                  std::span<const LinearSource> sources, const Producers& producers, PlanOrigin& origin,
                  ThreadPool& pool) {
  // Named wrong, a rule is wrong also where the format has no use for it.
  global_scale_rule_from_name(settings.global_scale);
  mx_scale_rule_from_name(settings.mx_scale);
  choose("--activation-scope", settings.scope, {"tensor", "token", "static"});
  const bool fused = choose("--weight-scale", settings.weight_scale, {"fused", "own"}) == 0;
  const bool folds = choose("--fold", settings.fold, {"all", "none"}) == 0;
  if (!(settings.bits_budget >= 0))
    fail_input("--bits-budget is {}, expected a number of bits", settings.bits_budget);
  refuse_idle_options(settings);
  if (settings.format.empty()) fail_input("--format is missing: nf4, fp4, nvfp4, mxfp4, mxfp8, int4 or int8");

  std::vector<std::string> linears;
  for (const LinearSource& source : sources) linears.push_back(source.name);
  const QuantSpec weights = weights_of(settings);
  PlanOptions options{
      .weights = weights, .activations = activations_of(settings, weights), .keep = settings.keep};
  std::erase(options.keep, "none");
  if (settings.bits_budget > 0) options.rules = rules_of_budget(settings, sources, checkpoint);
  for (const std::string& rule : settings.layer_formats) options.rules.push_back(parse_rule(settings, rule));
  QuantizePlan plan = make_plan(checkpoint, linears, options);
  plan.options = spoken(settings);

  std::optional<CalibrationStats> stats;
  const auto need_stats = [&](const std::string& who) -> const CalibrationStats& {
    if (settings.stats.empty())
      fail_input("{} goes by statistics: give --stats FILE, which \"halfbyte calibrate\" writes", who);
    if (!stats) {
      stats = read_stats(settings.stats);
      origin.stats = sha256(MappedFile(settings.stats).bytes());
      origin.calibration_texts = stats->sources;
    }
    return *stats;
  };
  switch (choose("--method", settings.method, {"rtn", "smoothquant", "hadamard", "atom", "arc"})) {
    case 1:
      plan_smoothquant(checkpoint, plan, sources, need_stats("--method smoothquant"), settings.alpha, pool,
                       folds ? producers : Producers{});
      break;
    case 2:
      plan_hadamard(checkpoint, plan, sources, settings.hadamard_block);
      break;
    case 3:
      plan_atom(checkpoint, plan, sources, need_stats("--method atom"), atom_options(settings));
      break;
    case 4:
      plan_arc(checkpoint, plan, sources, need_stats("--method arc"), arc_options(settings));
      break;
    default:
      break;
  }
  const bool fixed = settings.scope == "static" && plan.activations;
  if (fixed) plan_static_scales(checkpoint, plan, sources, need_stats("--activation-scope static"));
  if (given(settings, "--stats") && !stats)
    fail_input("--stats does nothing with --method {}{}", settings.method,
               fixed ? "" : " and --activation-scope " + settings.scope);
  if (fused) share_weight_scales(checkpoint, plan, sources);
  check_budget(settings, checkpoint, plan, sources);
  return plan;
}

}  // namespace

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
      "rtn, smoothquant, hadamard, atom or arc (residual channels); docs/methods.md compares them");
  add("--stats", s.stats, "smoothquant, atom, arc, static: statistics that \"halfbyte calibrate\" wrote");
  add("--alpha", s.alpha, "smoothquant: share of the range that goes into the weights");
  add("--fold", s.fold,
      "smoothquant: divide in norms and other weights where possible, or at run time: all or none");
  add("--hadamard-block", s.hadamard_block,
      "hadamard: channels rotated together, a power of two (0: the largest that divides)");
  add("--outliers", s.outliers, "atom: channels that keep 8 bits");
  add("--residual", s.residual,
      "arc: which channels have residuals: tau=3, energy=95, fixed=64 or percent=5");
  add("--order", s.order,
      "arc: columns by falling absmax, or natural; atom: rising, or natural (empty: the first)");
  add("--residual-scale", s.residual_scale,
      "arc, nvfp4: a global scale of the residuals' own, or shared with the input");
  add("--cap-percent", s.cap_percent, "arc: residual channels at most, percent of an input's")
      ->check(CLI::Range(0.0, 100.0));
  add("--cap-channels", s.cap_channels, "arc: residual channels at most")->check(CLI::NonNegativeNumber);
  if (plan)
    for (CLI::Option* option : options) plan->excludes(option);
}

PlannedModel::PlannedModel(const PlanSettings& settings, ThreadPool& pool)
    : checkpoint(settings.model), config(parse_model_config(checkpoint.config(), checkpoint.config_file())) {
  const std::vector<LinearInfo> linears = list_linears(config);
  const std::vector<LinearSource> sources = sources_of(linears);
  producers = producers_of(config);
  if (settings.plan.empty()) {
    plan = make(settings, checkpoint, sources, producers, origin, pool);
    check_tensors(checkpoint, config);
    origin.model = model_fingerprint(checkpoint, pool);
  } else {
    if (checkpoint.quantized())
      fail_input("{}: the model is quantized already; quantize the original, each rounding adds to the loss",
                 settings.model);
    check_tensors(checkpoint, config);
    PlanFile file = parse_plan(read_json_file(settings.plan, std::int64_t{1} << 30), settings.plan,
                               checkpoint, sources, producers);
    plan = std::move(file.plan);
    plan_file = std::filesystem::path(settings.plan).filename().string();
    if (const std::string warning = residual_warning(plan); !warning.empty())
      plan.warnings.push_back(warning);
    origin = std::move(file.origin);
    const std::string found = model_fingerprint(checkpoint, pool);
    if (origin.model != found)
      fail_input("{}: was made for another model than {} (fingerprint {}, expected {}); plan again",
                 settings.plan, settings.model, found, origin.model);
  }
  text = plan_text(plan, origin);
}

RunRecord PlannedModel::record() const {
  std::map<std::string, std::string> options = plan.options;
  if (!plan_file.empty()) options["plan"] = plan_file;
  return {.tool = "halfbyte " HALFBYTE_VERSION,
          .model = origin.model,
          .stats = origin.stats,
          .plan = sha256(text),
          .calibration_texts = origin.calibration_texts,
          .options = std::move(options)};
}

void print_plan(const QuantizePlan& plan) {
  if (!plan.inputs.empty()) {
    fmt::print("{:<40} {:>8} {:>8} {:>9} {:>8}  {}\n", "input", "channels", "residual", "share %", "8 bits",
               "method");
    for (const PlannedInput& input : plan.inputs) {
      const InputInfo& info = input.transform.info;
      std::string method = info.method;
      if (!input.ranking.empty()) method += " " + std::string(column_order_name(input.order));
      if (info.hadamard > 1) method += fmt::format(" {}", info.hadamard);
      if (!input.folded_into.empty()) method += " in " + input.folded_into;
      if (info.global_scale != 0.0f) method += fmt::format(", global scale {:g}", info.global_scale);
      fmt::print("{:<40} {:>8} {:>8} {:>9.2f} {:>8}  {}\n", input.name, info.channels, info.residual,
                 100 * static_cast<double>(info.residual) / static_cast<double>(info.channels), info.outliers,
                 method);
    }
    fmt::print("\n");
  }
  std::map<std::string, std::int64_t> kinds;
  for (const PlannedTensor& tensor : plan.tensors)
    ++kinds[!tensor.spec ? "left alone: " + tensor.reason
                         : to_string(*tensor.spec) + ", activations " +
                               (tensor.activations ? to_string(*tensor.activations) : "float")];
  fmt::print("{:<8}  {}\n", "tensors", "precision");
  for (const auto& [kind, count] : kinds) fmt::print("{:<8}  {}\n", count, kind);
}

}  // namespace halfbyte::cli
