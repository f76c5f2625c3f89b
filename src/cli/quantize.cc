// halfbyte quantize: a model directory in, a quantized checkpoint out.
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>

#include "checkpoint/export.h"
#include "cli/commands.h"
#include "cli/export_to.h"
#include "cli/options.h"
#include "cli/planned_model.h"
#include "cli/progress.h"
#include "core/fail.h"
#include "io/output.h"
#include "io/text.h"
#include "quantize/write.h"

namespace halfbyte::cli {

namespace {

struct Options {
  PlanSettings settings;
  ExportTarget target;
  bool resume = false;
  int threads = 1;
};

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

// What an export would refuse after all the work, where the plan shows it already.
void check_export(const PlannedModel& planned, const ExportTarget& target) {
  const QuantizePlan& plan = planned.plan;
  if (const auto format = find_export_format(target.to))
    check_exportable(planned_quantization(planned.checkpoint, plan), *format,
                     {.weights_only = target.weights_only});
  const auto& activations = plan.activations;
  if (!activations || target.weights_only || target.to == "gguf" || target.to == "halfbyte-arc") return;
  if (activations->spec.format != Format::nvfp4 || activations->scope != ActivationScope::fixed)
    fail(ErrorKind::unsupported,
         "--export {} holds activations in nvfp4 under static scales, not {}; give --activation-scope "
         "static, or "
         "--weights-only to leave them out",
         target.to, to_string(*activations));
  if (activations->spec.scale_search)
    fmt::print(
        stderr,
        "note: other engines round activations under the plain scale of each block, not the best of nine; "
        "\"--no-activation-search\" evaluates what they do\n");
}

void run(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  ThreadPool pool(options.threads);
  const PlannedModel planned(options.settings, pool);
  const QuantizePlan& plan = planned.plan;
  for (const std::string& warning : plan.warnings) fmt::print(stderr, "warning: {}\n", warning);

  const std::filesystem::path inputs[] = {options.settings.model, options.settings.stats,
                                          options.settings.plan};
  const ExportTarget& target = options.target;
  const bool own = target.to == "halfbyte";
  if (!own && target.to != "gguf" && !find_export_format(target.to))
    fail_input(
        "--export is {}, expected halfbyte, bitsandbytes, compressed-tensors, halfbyte-arc, modelopt or gguf",
        quote(target.to));
  if (own && (target.max_shard_size || target.weights_only || target.allow_rounding))
    fail_input("--max-shard-size, --weights-only and --allow-rounding apply to exports only (--export)");
  if (!own && options.resume)
    fail_input(
        "--resume goes with halfbyte's own layout; quantize so, and then \"halfbyte convert\" the result");
  if (!own) {
    check_export(planned, target);
    check_export_target(target, inputs);
  }
  refuse_overwriting(target.out, inputs);
  // An export is made from a whole checkpoint of our own, which is gone afterwards.
  OutputDirectory out(own ? target.out : fmt::format("{}.{}.halfbyte", target.out, ::getpid()),
                      target.overwrite, options.resume ? Unfinished::keep : Unfinished::remove);
  const RunRecord record = planned.record();
  const std::unique_ptr<WeightRounder> rounder = planned.rounder(pool);
  QuantizeSummary summary;
  {
    Progress progress("quantizing", static_cast<std::int64_t>(plan.tensors.size()));
    summary = write_quantized(
        planned.checkpoint, plan, out.temporary(), pool,
        {.record = &record,
         .resumable = options.resume,
         .rounder = rounder.get(),
         .progress = [&](std::int64_t done, const std::string& name) { progress.update(done, name); }},
        planned.producers);
  }
  if (own) {
    out.commit();
  } else {
    export_to(Checkpoint(out.temporary()), target, record, pool);
    std::filesystem::remove_all(out.temporary());
  }
  if (summary.taken_over)
    fmt::print(stderr, "{} of {} tensors were there from an earlier run\n", summary.taken_over,
               plan.tensors.size());
  print_summary(plan, summary);
  print_residuals(plan);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("\n{}: {:.1f} MB in {:.2f} s, peak memory {:.0f} MB\n", target.out,
             1e-6 * static_cast<double>(summary.file_bytes),
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
             static_cast<double>(usage.ru_maxrss) / 1024.0);
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("quantize", "Round a model's linear layers to a 4- or 8-bit format");
  add_plan_settings(*command, options->settings, true);
  command->add_option("-o,--output", options->target.out, "Directory to write; appears only when complete")
      ->required();
  command
      ->add_option("--export", options->target.to,
                   "The layout to write: halfbyte, bitsandbytes, compressed-tensors, halfbyte-arc, modelopt, "
                   "or gguf (a file)")
      ->capture_default_str();
  add_export_options(*command, options->target);
  command->add_flag(
      "--resume", options->resume,
      "Keep what is finished where the run is stopped, and go on with it when the same command is run again");
  add_threads(*command, options->threads);
  command->footer(
      "Examples:\n  halfbyte quantize smollm2 -o smollm2-nf4 --format nf4 --double-quant\n"
      "  halfbyte quantize smollm2 -o smollm2-w4a4 --format nvfp4 --activations same --keep "
      "lm_head,layers.0\n"
      "  halfbyte quantize smollm2 -o smollm2-arc --format nvfp4 --activations same --method arc --stats "
      "stats.safetensors --residual percent=10\n"
      "  halfbyte quantize smollm2 -o smollm2-arc --plan plan.json --resume\n"
      "  halfbyte quantize smollm2 -o smollm2-vllm --format nvfp4 --activations same --activation-scope "
      "static --stats "
      "stats.safetensors --export compressed-tensors");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
