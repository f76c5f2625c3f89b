// halfbyte plan: what quantize would do, as a file to read, change and carry out.
#include <fmt/core.h>

#include <memory>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/planned_model.h"
#include "io/output.h"

namespace halfbyte::cli {

namespace {

struct Options {
  PlanSettings settings;
  std::string out;
  int threads = 1;
};

void run(const Options& options) {
  const std::filesystem::path inputs[] = {options.settings.model, options.settings.stats};
  check_output_file(options.out, inputs);
  ThreadPool pool(options.threads);
  const PlannedModel planned(options.settings, pool);
  for (const std::string& warning : planned.plan.warnings) fmt::print(stderr, "warning: {}\n", warning);
  write_text_file(options.out, planned.text);
  print_plan(planned.plan);
}

}  // namespace

void add_plan(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("plan", "What quantize would do, as a file to read and change");
  add_plan_settings(*command, options->settings, false);
  command->add_option("-o,--output", options->out, "Plan to write (JSON)")->required();
  add_threads(*command, options->threads);
  command->footer(
      "Example:\n  halfbyte plan smollm2 --format nvfp4 --activations same --method arc --stats "
      "stats.safetensors -o "
      "plan.json\n  halfbyte quantize smollm2 --plan plan.json -o smollm2-arc");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
