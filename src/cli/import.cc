// halfbyte import: a GGUF file becomes a Hugging Face model folder.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "checkpoint/gguf.h"
#include "cli/commands.h"
#include "io/output.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::string model, output;
  bool overwrite = false;
};

void run(const Options& options) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  std::int64_t shown = -1;
  const auto progress = [&](std::int64_t done, std::int64_t total) {
    const std::int64_t percent = done * 100 / std::max<std::int64_t>(total, 1);
    if (!terminal || percent == shown) return;
    shown = percent;
    fmt::print(stderr, "\rimporting {} {:3} %", options.model, percent);
    std::fflush(stderr);
  };
  const std::filesystem::path inputs[] = {options.model};
  refuse_overwriting(options.output, inputs);
  const GgufImport result = import_gguf(options.model, options.output, options.overwrite, progress);
  if (terminal) fmt::print(stderr, "\r\x1B[K");
  fmt::print("{}: {} model, {} tensors, {:.1f} M parameters, {:.1f} MB read, {:.1f} MB of BF16 written\n",
             options.output, result.architecture, result.tensors,
             static_cast<double>(result.parameters) / 1e6, static_cast<double>(result.bytes_read) / 1e6,
             static_cast<double>(result.bytes_written) / 1e6);
}

}  // namespace

void add_import(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("import", "Turn a GGUF file into a Hugging Face model folder with BF16 weights");
  const auto options = std::make_shared<Options>();
  command->add_option("model", options->model, "The GGUF file")->required();
  command->add_option("-o,--output", options->output, "Folder to write; it must not exist or be empty")
      ->required();
  command->add_flag("--overwrite", options->overwrite, "Replace a model folder that is already there");
  command->footer("Example:\n  halfbyte import SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
