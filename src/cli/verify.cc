// halfbyte verify: whether a checkpoint is whole and as it was written.
#include <fmt/core.h>

#include <cmath>
#include <memory>

#include "checkpoint/manifest.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "core/fail.h"
#include "formats/source_dtype.h"
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

void check_plain(const Checkpoint& checkpoint, const std::string& name) {
  const TensorView& view = *checkpoint.plain(name);
  if (!is_source_dtype(view.dtype)) return;
  for (std::int64_t i = 0; i < view.elements(); ++i)
    if (const float value = load_element(view.dtype, view.data.data(), i); !std::isfinite(value))
      fail_input("{}: {} holds {} at element {}; the file is damaged", checkpoint.files().path(), name, value,
                 i);
}

void run(const Options& options) {
  ThreadPool pool(options.threads);
  const bool listed = std::filesystem::exists(std::filesystem::path(options.dir) / kManifestName);
  if (listed) {
    const std::vector<std::string> findings = check_manifest(options.dir, pool);
    for (std::size_t i = 0; i + 1 < findings.size(); ++i) fmt::print(stderr, "{}\n", findings[i]);
    if (findings.size() == 1) fail_input("{}", findings[0]);
    if (!findings.empty()) fail_input("{} ({} findings in all)", findings.back(), findings.size());
  }
  const Checkpoint checkpoint(options.dir);
  std::int64_t tensors = 0;
  for (const std::string& name : checkpoint.names()) {
    ++tensors;
    if (!checkpoint.is_quantized(name)) {
      check_plain(checkpoint, name);
      checkpoint.drop(name);
      continue;
    }
    decode(checkpoint, name, checkpoint.quantized(name), pool);
    if (checkpoint.quantization().tensors.find(name)->second.outliers)
      decode(checkpoint, name, checkpoint.outliers(name), pool);
    checkpoint.drop(name);
  }
  fmt::print("{}: {} tensors, {} of them quantized, all are finite numbers; {}\n", options.dir, tensors,
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
