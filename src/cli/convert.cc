// halfbyte convert: a quantized checkpoint in the layout of another ecosystem, codes and scales unchanged.
#include <fmt/core.h>

#include <memory>

#include "checkpoint/export.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "core/fail.h"
#include "io/output.h"
#include "io/text.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::string model, to, out;
  std::uint64_t max_shard_size = 0;
  bool weights_only = false, allow_rounding = false, overwrite = false;
};

void run(const Options& options) {
  const auto format = find_export_format(options.to);
  if (!format)
    fail_input("--to is {}, expected halfbyte, bitsandbytes, compressed-tensors or modelopt",
               quote(options.to));
  const Checkpoint checkpoint(options.model);
  const std::filesystem::path inputs[] = {options.model};
  refuse_overwriting(options.out, inputs);
  OutputDirectory out(options.out, options.overwrite);
  ExportSummary summary;
  {
    Progress progress("converting", static_cast<std::int64_t>(checkpoint.names().size()));
    summary = export_checkpoint(checkpoint, *format, out.temporary(),
                                {.max_shard_bytes = static_cast<std::int64_t>(options.max_shard_size),
                                 .weights_only = options.weights_only,
                                 .allow_rounding = options.allow_rounding},
                                [&](std::int64_t done, std::int64_t) { progress.update(done); });
  }
  out.commit();
  for (const std::string& note : summary.notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print("{}: {}, {} quantized and {} other tensors, {:.1f} MB in {} file{}\n", options.out, options.to,
             summary.quantized, summary.plain, 1e-6 * static_cast<double>(summary.bytes), summary.files,
             summary.files == 1 ? "" : "s");
}

}  // namespace

void add_convert(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "convert",
      "Write a quantized checkpoint in the layout of another ecosystem, codes and scales unchanged");
  command
      ->add_option("model", options->model, "Quantized model directory, of halfbyte or one of the ecosystems")
      ->required();
  command->add_option("--to", options->to, "halfbyte, bitsandbytes, compressed-tensors or modelopt")
      ->required();
  command->add_option("-o,--output", options->out, "Directory to write; appears only when complete")
      ->required();
  command
      ->add_option("--max-shard-size", options->max_shard_size,
                   "Split the weights into files of at most this size, like 5GB (0: one file)")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str();
  command->add_flag("--weights-only", options->weights_only, "Leave out how activations are rounded");
  command->add_flag("--allow-rounding", options->allow_rounding,
                    "Let a global scale whose reciprocal is not exact become the rounded one");
  command->add_flag("--overwrite", options->overwrite, "Replace the output directory if it is a model");
  command->footer(
      "Only what the other layout can hold exactly is converted; anything else is refused with the reason.\n"
      "Example:\n  halfbyte convert smollm2-nvfp4 --to compressed-tensors -o smollm2-nvfp4-vllm");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
