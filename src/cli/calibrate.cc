// halfbyte calibrate: text through a model, statistics of what goes into its linears out.
#include "calibrate/calibrate.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <chrono>
#include <memory>

#include "calibrate/stats_file.h"
#include "cli/calibration_text.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/fail.h"
#include "io/output.h"

namespace halfbyte::cli {

namespace {

constexpr std::int64_t kFewSamples = 64;

struct Options {
  std::string model, out;
  CalibrationText text;
  SampleOptions samples;
  bool hessian = false;
  int threads = 1;
};

void run(const Options& options) {
  if (options.text.empty())
    fail_input(
        "no calibration text: give --text FILE or --jsonl FILE, a few hundred thousand tokens of what the "
        "model "
        "will read");
  const auto start = std::chrono::steady_clock::now();
  if (Checkpoint(options.model).quantized())
    fail_input("{}: the model is quantized; calibrate the original, whose inputs the methods compare with",
               options.model);
  const SampleSet samples = options.text.samples(options.model, options.samples);
  const auto count = static_cast<std::int64_t>(samples.size());
  if (count < kFewSamples)
    fmt::print(
        stderr,
        "warning: {} samples are few, maxima of rare channels may be missed; 512 to 1024 are advised\n",
        count);

  std::vector<std::filesystem::path> inputs{options.model};
  for (std::string& path : options.text.paths()) inputs.emplace_back(std::move(path));
  check_output_file(options.out, inputs);
  ThreadPool pool(options.threads);
  Model model = Model::load(options.model, pool);
  for (const std::string& warning : model.warnings()) fmt::print(stderr, "warning: {}\n", warning);
  if (options.hessian)
    fmt::print(stderr, "second moments take {:.1f} GB of memory while they are gathered\n",
               1e-9 * static_cast<double>(second_moment_bytes(model.config())));
  Calibration result;
  {
    Progress progress("calibrating", count);
    result = calibrate(
        model, samples, options.samples, pool,
        [&](const CalibrationProgress& p) {
          progress.update(p.done, p.dropped ? fmt::format("{} dropped", p.dropped) : "");
        },
        options.hessian);
  }
  result.stats.sources = options.text.sums();
  for (const auto& [name, dropped] : result.dropped_at)
    fmt::print(stderr, "warning: {} samples dropped, NaN or infinite first in {}\n", dropped, name);
  for (const std::string& name : result.zero_inputs)
    fmt::print(stderr, "warning: {} was always zero; its largest magnitude counts as {:g}\n", name,
               kZeroInputAbsmax);
  write_stats(options.out, result.stats);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{}: {} inputs over {} tokens in {} samples of {} (of {} in the text), {} dropped, {:.1f} s, peak "
      "memory {:.0f} MB\n",
      options.out, result.stats.inputs.size(), result.stats.tokens, result.stats.samples, samples[0].size(),
      samples.available(), result.stats.dropped,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
      static_cast<double>(usage.ru_maxrss) / 1024.0);
}

}  // namespace

void add_calibrate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Statistics of what goes into a model's linear layers, over text");
  command->add_option("model", options->model, "Model directory, not quantized")->required();
  add_calibration_text(*command, options->text);
  command->add_option("-o,--output", options->out, "Statistics file to write (safetensors)")->required();
  command
      ->add_option("--samples", options->samples.samples, "Samples to run at most; 512 to 1024 are advised")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32))
      ->capture_default_str();
  command->add_option("--seq-len", options->samples.seq_len, "Tokens a sample")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--seed", options->samples.seed, "Of the shuffle that picks the samples")
      ->capture_default_str();
  command->add_flag("--hessian", options->hessian, "Also the second moments of each input (K x K; large)");
  add_threads(*command, options->threads);
  command->footer(
      "Examples:\n  halfbyte calibrate smollm2 --text news.txt code.txt -o stats.safetensors\n"
      "  halfbyte calibrate smollm2 --jsonl chats.jsonl --field text --samples 256 --seq-len 512 -o "
      "stats.safetensors");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
