// halfbyte quantize: a model directory in, a quantized checkpoint out.
#include <fmt/core.h>
#include <sys/resource.h>

#include <chrono>
#include <map>
#include <memory>
#include <set>

#include "calibrate/stats_file.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/fail.h"
#include "io/output.h"
#include "io/text.h"
#include "model/linears.h"
#include "model/model.h"
#include "quantize/arc.h"
#include "quantize/hadamard.h"
#include "quantize/plan.h"
#include "quantize/rtn.h"
#include "quantize/smoothquant.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::string model, out, format, activations = "bf16", global_scale = "pow2", mx_scale = "floor",
                                  scope = "tensor";
  std::string method = "rtn", stats, order = "absmax", residual = "tau", residual_scale = "own";
  double alpha = 0.5, cap_percent = 10;
  std::int64_t cap_channels = 512, hadamard_block = 0;
  std::int64_t block_size = 0;
  bool double_quant = false, four_six = false, overwrite = false;
  std::vector<std::string> keep{"lm_head"};
  int threads = 1;
};

// The spec of a format under the rules given on the command line, where they apply to it.
QuantSpec make_spec(const Options& options, Format format) {
  QuantSpec spec{.format = format};
  const FormatInfo& info = format_info(format);
  if (info.scale == ScaleKind::e4m3_and_global)
    spec.global_scale = global_scale_rule_from_name(options.global_scale);
  if (info.scale == ScaleKind::e8m0) spec.mx_scale = mx_scale_rule_from_name(options.mx_scale);
  return spec;
}

std::optional<ActivationSpec> activations_of(const Options& options, const QuantSpec& weights) {
  QuantSpec spec = weights;
  if (options.activations != "same") {
    const Format format = format_from_name(options.activations);
    if (format == Format::bf16) return std::nullopt;
    spec = make_spec(options, format);
    if (format == Format::nvfp4) spec.four_six = options.four_six;
  }
  if (spec.format == Format::nf4 || spec.format == Format::fp4)
    fail_input(
        "--activations {}: {} is a format for weights only; use bf16, nvfp4, mxfp4, mxfp8, int8 or int4",
        options.activations, format_name(spec.format));
  return ActivationSpec{
      .spec = spec, .scope = options.scope == "tensor" ? ActivationScope::tensor : ActivationScope::token};
}

ArcOptions arc_options(const Options& options) {
  if (options.order != "absmax" && options.order != "natural")
    fail_input("--order is {}, expected absmax or natural", quote(options.order));
  if (options.residual_scale != "own" && options.residual_scale != "shared")
    fail_input("--residual-scale is {}, expected own or shared", quote(options.residual_scale));
  return {.order = options.order == "absmax" ? ArcOptions::Order::absmax : ArcOptions::Order::natural,
          .rule = parse_residual_rule(options.residual),
          .cap_channels = options.cap_channels,
          .cap_percent = options.cap_percent,
          .shared_scale = options.residual_scale == "shared"};
}

// Lets the method change the plan of rounding to nearest.
void apply_method(const Options& options, const Checkpoint& checkpoint, std::span<const LinearInfo> linears,
                  QuantizePlan& plan, ThreadPool& pool) {
  std::vector<LinearSource> sources;
  for (const LinearInfo& linear : linears)
    sources.push_back({linear.name, input_name(linear.input, linear.layer)});
  const auto stats = [&] {
    if (options.stats.empty())
      fail_input("--method {} goes by statistics: give --stats FILE, which \"halfbyte calibrate\" writes",
                 options.method);
    return read_stats(options.stats);
  };
  if (options.method == "arc")
    plan_arc(checkpoint, plan, sources, stats(), arc_options(options));
  else if (options.method == "smoothquant")
    plan_smoothquant(checkpoint, plan, sources, stats(), options.alpha, pool);
  else if (options.method == "hadamard")
    plan_hadamard(checkpoint, plan, sources, options.hadamard_block);
  else if (options.method != "rtn")
    fail_input("--method is {}, expected rtn, smoothquant, hadamard or arc", quote(options.method));
}

void print_residuals(const QuantizePlan& plan) {
  std::int64_t residual = 0, channels = 0;
  double share = 0;
  for (const PlannedInput& input : plan.inputs) {
    residual += input.transform.info.residual;
    channels += input.transform.info.channels;
    share += static_cast<double>(input.transform.info.residual) /
             static_cast<double>(input.transform.info.channels);
  }
  if (residual)
    fmt::print("\nresidual channels: {} of {} in {} inputs, {:.2f} % of an input's on average\n", residual,
               channels, plan.inputs.size(), 100 * share / static_cast<double>(plan.inputs.size()));
}

void print_summary(const QuantizePlan& plan, const QuantizeSummary& summary) {
  fmt::print("{:<34} {:>8} {:>14} {:>14} {:>12}\n", "precision", "tensors", "elements", "bytes",
             "bits/weight");
  PrecisionTotals all;
  const auto row = [](const std::string& name, const PrecisionTotals& t) {
    fmt::print("{:<34} {:>8} {:>14} {:>14} {:>12.3f}\n", name, t.tensors, t.elements, t.bytes,
               t.elements ? 8.0 * static_cast<double>(t.bytes) / static_cast<double>(t.elements) : 0.0);
  };
  for (const auto& [name, totals] : summary.precisions) {
    row(name, totals);
    all.tensors += totals.tensors;
    all.elements += totals.elements;
    all.bytes += totals.bytes;
  }
  row("all", all);
  // Tensors of all layers that are alike share a line: "model.layers.*.input_layernorm.weight".
  std::map<std::string, std::pair<std::int64_t, std::string>> kept;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.spec) continue;
    std::string name;
    for (std::size_t i = 0; i < tensor.name.size();) {
      const std::size_t dot = std::min(tensor.name.find('.', i), tensor.name.size());
      const std::string part = tensor.name.substr(i, dot - i);
      name += (name.empty() ? "" : ".") +
              (part.find_first_not_of("0123456789") == std::string::npos ? "*" : part);
      i = dot + 1;
    }
    auto& line = kept[name];
    ++line.first;
    line.second = tensor.reason;
  }
  fmt::print("\nleft alone\n");
  for (const auto& [name, line] : kept) fmt::print("  {:<52} {:>5}  {}\n", name, line.first, line.second);
}

void run(const Options& options) {
  // Named wrong, a rule is wrong also where the format has no use for it.
  global_scale_rule_from_name(options.global_scale);
  mx_scale_rule_from_name(options.mx_scale);
  if (options.scope != "tensor" && options.scope != "token")
    fail_input("--activation-scope is {}, expected tensor or token", quote(options.scope));
  if (format_from_name(options.format) == Format::bf16)
    fail_input("--format bf16 would change nothing; use nf4, fp4, nvfp4, mxfp4, mxfp8, int4 or int8");
  QuantSpec weights = make_spec(options, format_from_name(options.format));
  weights.block_size = options.block_size;
  weights.double_quant = options.double_quant;
  weights.four_six = options.four_six;
  validate(weights);

  const auto start = std::chrono::steady_clock::now();
  const Checkpoint checkpoint(options.model);
  const ModelConfig config = parse_model_config(checkpoint.config(), checkpoint.config_file());
  const std::vector<LinearInfo> infos = list_linears(config);
  std::vector<std::string> linears;
  for (const LinearInfo& linear : infos) linears.push_back(linear.name);
  PlanOptions plan_options{
      .weights = weights, .activations = activations_of(options, weights), .keep = options.keep};
  std::erase(plan_options.keep, "none");
  QuantizePlan plan = make_plan(checkpoint, linears, plan_options);
  check_tensors(checkpoint, config);
  ThreadPool pool(options.threads);
  apply_method(options, checkpoint, infos, plan, pool);
  for (const std::string& warning : plan.warnings) fmt::print(stderr, "warning: {}\n", warning);

  const std::filesystem::path inputs[] = {options.model, options.stats};
  refuse_overwriting(options.out, inputs);
  OutputDirectory out(options.out, options.overwrite);
  QuantizeSummary summary;
  {
    Progress progress("quantizing", static_cast<std::int64_t>(plan.tensors.size()));
    summary = quantize_rtn(checkpoint, plan, out.temporary(), pool,
                           [&](std::int64_t done, const std::string& name) { progress.update(done, name); });
  }
  out.commit();
  print_summary(plan, summary);
  print_residuals(plan);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("\n{}: {:.1f} MB in {:.2f} s, peak memory {:.0f} MB\n", options.out,
             1e-6 * static_cast<double>(summary.file_bytes),
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
             static_cast<double>(usage.ru_maxrss) / 1024.0);
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("quantize", "Round a model's linear layers to a 4- or 8-bit format");
  command->add_option("model", options->model, "Model directory (config.json, safetensors, tokenizer)")
      ->required();
  command->add_option("-o,--output", options->out, "Directory to write; appears only when complete")
      ->required();
  command->add_option("--format", options->format, "nf4, fp4, nvfp4, mxfp4, mxfp8, mxfp8_e5m2, int4 or int8")
      ->required();
  command
      ->add_option("--block-size", options->block_size, "Values that share a scale (0: the format's default)")
      ->capture_default_str();
  command->add_flag("--double-quant", options->double_quant, "nf4, fp4: store the scales in 8 bits");
  command->add_flag("--four-six", options->four_six,
                    "nvfp4: for each block the better of a scale to 6 and one to 4");
  command
      ->add_option("--global-scale", options->global_scale,
                   "nvfp4: pow2, amax, compressed-tensors or modelopt")
      ->capture_default_str();
  command
      ->add_option("--mx-scale", options->mx_scale,
                   "mxfp4, mxfp8: floor, ceil, rceil, even, compressed-tensors or modelopt")
      ->capture_default_str();
  command
      ->add_option("--activations", options->activations,
                   "How engines round the inputs of these layers: bf16 (not at all), same, or a format")
      ->capture_default_str();
  command
      ->add_option("--activation-scope", options->scope,
                   "nvfp4 activations: one global scale a tensor or a token")
      ->capture_default_str();
  command
      ->add_option("--keep", options->keep, "Linear layers to leave alone: names, parts or patterns, or none")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--method", options->method,
                   "rtn, smoothquant, hadamard or arc (residual channels); docs/methods.md compares them")
      ->capture_default_str();
  command->add_option("--stats", options->stats,
                      "smoothquant, arc: statistics that \"halfbyte calibrate\" wrote");
  command->add_option("--alpha", options->alpha, "smoothquant: share of the range that goes into the weights")
      ->capture_default_str();
  command
      ->add_option("--hadamard-block", options->hadamard_block,
                   "hadamard: channels rotated together, a power of two (0: the largest that divides)")
      ->capture_default_str();
  command
      ->add_option("--residual", options->residual,
                   "arc: which channels have residuals: tau=3, energy=95, fixed=64 or percent=5")
      ->capture_default_str();
  command->add_option("--order", options->order, "arc: columns by falling absmax, or in their natural order")
      ->capture_default_str();
  command
      ->add_option("--residual-scale", options->residual_scale,
                   "arc, nvfp4: a global scale of the residuals' own, or shared with the input")
      ->capture_default_str();
  command
      ->add_option("--cap-percent", options->cap_percent,
                   "arc: residual channels at most, percent of an input's")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--cap-channels", options->cap_channels, "arc: residual channels at most")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--overwrite", options->overwrite, "Replace the output directory if it is a model");
  add_threads(*command, options->threads);
  command->footer(
      "Examples:\n  halfbyte quantize smollm2 -o smollm2-nf4 --format nf4 --double-quant\n"
      "  halfbyte quantize smollm2 -o smollm2-w4a4 --format nvfp4 --activations same --keep "
      "lm_head,layers.0\n"
      "  halfbyte quantize smollm2 -o smollm2-arc --format nvfp4 --activations same --method arc --stats "
      "stats.safetensors --residual percent=10");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
