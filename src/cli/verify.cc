// halfbyte verify: whether a checkpoint is whole and as it was written.
#include <fmt/core.h>

#include <cmath>
#include <memory>

#include "checkpoint/manifest.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "core/fail.h"
#include "ops/dequantize/op.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::string dir;
  int threads = 1;
};

void decode(const Checkpoint& checkpoint, const std::string& name, const QuantizedTensor& tensor,
            ThreadPool& pool) {
  const Array<float> values = dequantize(tensor, pool);
  for (std::int64_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      fail_input("{}: {} decodes to {} at element {}; the file is damaged", checkpoint.files().path(), name,
                 values[i], i);
}

void run(const Options& options) {
  ThreadPool pool(options.threads);
  const bool listed = std::filesystem::exists(std::filesystem::path(options.dir) / kManifestName);
  if (listed) {
    const std::vector<std::string> findings = check_manifest(options.dir, pool);
    for (std::size_t i = 0; i + 1 < findings.size(); ++i) fmt::print(stderr, "{}\n", findings[i]);
    if (!findings.empty()) fail_input("{} ({} findings in all)", findings.back(), findings.size());
  }
  const Checkpoint checkpoint(options.dir);
  std::int64_t tensors = 0;
  for (const std::string& name : checkpoint.names()) {
    ++tensors;
    if (!checkpoint.is_quantized(name)) continue;
    decode(checkpoint, name, checkpoint.quantized(name), pool);
    if (checkpoint.quantization().tensors.find(name)->second.outliers)
      decode(checkpoint, name, checkpoint.outliers(name), pool);
    checkpoint.drop(name);
  }
  fmt::print("{}: {} tensors, {} of them quantized, all decode to finite numbers; {}\n", options.dir, tensors,
             checkpoint.quantization().tensors.size(),
             listed ? "every byte is as it was written"
                    : "there is no manifest, so nothing says whether they are as they were written");
}

}  // namespace

void add_verify(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("verify", "Check a checkpoint against its manifest and decode all of it");
  command->add_option("model", options->dir, "Checkpoint directory")->required();
  add_threads(*command, options->threads);
  command->footer("Example:\n  halfbyte verify smollm2-arc");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
