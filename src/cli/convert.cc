// halfbyte convert: a checkpoint in the layout of another ecosystem, codes and scales unchanged; or any model as GGUF.
#include <fmt/core.h>

#include <memory>

#include "checkpoint/export.h"
#include "checkpoint/gguf_export.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "core/fail.h"
#include "io/output.h"
#include "io/text.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::string model, to, out, linears = "bf16";
  std::uint64_t max_shard_size = 0;
  bool weights_only = false, allow_rounding = false, overwrite = false;
};

void to_gguf(const Options& options) {
  const auto linears = find_gguf_linears(options.linears);
  if (!linears) fail_input("--linears is {}, expected bf16, q8_0 or q4_0", quote(options.linears));
  if (options.max_shard_size)
    fail_input("--max-shard-size does not apply to GGUF, which is written as one file");
  const std::filesystem::path inputs[] = {options.model};
  check_output_file(options.out, inputs);
  if (std::filesystem::exists(options.out) && !options.overwrite)
    fail_input("{}: is there already; remove it or give --overwrite", options.out);
  const Checkpoint checkpoint(options.model);
  GgufExport result;
  {
    Progress progress("converting", static_cast<std::int64_t>(checkpoint.names().size()));
    result = export_gguf(
        checkpoint, options.out,
        {.linears = *linears, .weights_only = options.weights_only, .allow_rounding = options.allow_rounding},
        [&](std::int64_t done, std::int64_t) { progress.update(done); });
  }
  for (const std::string& note : result.notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print("{}: gguf, {} tensors, {:.1f} MB\n", options.out, result.tensors,
             1e-6 * static_cast<double>(result.bytes));
}

void to_folder(const Options& options) {
  const auto format = find_export_format(options.to);
  if (!format)
    fail_input("--to is {}, expected halfbyte, bitsandbytes, compressed-tensors, modelopt or gguf",
               quote(options.to));
  if (options.linears != "bf16") fail_input("--linears applies to --to gguf only");
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

void run(const Options& options) {
  if (options.to == "gguf")
    to_gguf(options);
  else
    to_folder(options);
}

}  // namespace

void add_convert(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "convert", "Write a checkpoint in the layout of another ecosystem, codes and scales unchanged");
  command
      ->add_option("model", options->model,
                   "Quantized model directory, of halfbyte or one of the ecosystems; for gguf any model")
      ->required();
  command->add_option("--to", options->to, "halfbyte, bitsandbytes, compressed-tensors, modelopt or gguf")
      ->required();
  command
      ->add_option("-o,--output", options->out,
                   "Directory to write, for gguf a file; appears only when complete")
      ->required();
  command
      ->add_option("--linears", options->linears,
                   "gguf: what layers that are not quantized become: bf16 (as they are), q8_0 or q4_0")
      ->capture_default_str();
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
      "Examples:\n  halfbyte convert smollm2-nvfp4 --to compressed-tensors -o smollm2-nvfp4-vllm\n"
      "  halfbyte convert smollm2-nvfp4 --to gguf -o smollm2-nvfp4.gguf");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
