// halfbyte convert: a checkpoint in the layout of another ecosystem, codes and scales unchanged; or any model as GGUF.
#include <memory>

#include "cli/commands.h"
#include "cli/export_to.h"
#include "cli/options.h"

namespace halfbyte::cli {

void add_convert(CLI::App& app) {
  struct Options {
    std::string model;
    ExportTarget target;
    int threads = 1;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "convert", "Write a checkpoint in the layout of another ecosystem, codes and scales unchanged");
  command
      ->add_option("model", options->model,
                   "Quantized model directory, of halfbyte or one of the ecosystems; for gguf any model")
      ->required();
  command
      ->add_option("--to", options->target.to,
                   "halfbyte, bitsandbytes, compressed-tensors, halfbyte-arc, modelopt or gguf")
      ->required();
  command
      ->add_option("-o,--output", options->target.out,
                   "Directory to write, for gguf a file; appears only when complete")
      ->required();
  command
      ->add_option("--linears", options->target.linears,
                   "gguf: what layers that are not quantized become: bf16 (as they are), q8_0 or q4_0")
      ->capture_default_str();
  add_export_options(*command, options->target);
  command->footer(
      "Only what the other layout can hold exactly is converted; anything else is refused with the reason.\n"
      "Examples:\n  halfbyte convert smollm2-nvfp4 --to compressed-tensors -o smollm2-nvfp4-vllm\n"
      "  halfbyte convert smollm2-nvfp4 --to gguf -o smollm2-nvfp4.gguf\n"
      "  halfbyte convert smollm2-arc --to halfbyte-arc -o smollm2-arc-vllm");
  add_threads(*command, options->threads);
  command->callback([options] {
    ThreadPool pool(options->threads);
    const Checkpoint checkpoint(options->model);
    const RunRecord run{.tool = "halfbyte " HALFBYTE_VERSION,
                        .model = model_fingerprint(checkpoint, pool),
                        .stats = {},
                        .plan = {},
                        .options = {}};
    export_to(checkpoint, options->target, run, pool);
  });
}

}  // namespace halfbyte::cli
