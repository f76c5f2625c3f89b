#include "cli/export_to.h"

#include <fmt/core.h>

#include "checkpoint/export.h"
#include "checkpoint/gguf_export.h"
#include "cli/progress.h"
#include "core/fail.h"
#include "io/output.h"
#include "io/text.h"

namespace halfbyte::cli {

namespace {

void to_gguf(const Checkpoint& checkpoint, const ExportTarget& target) {
  const auto linears = find_gguf_linears(target.linears);
  if (!linears) fail_input("--linears is {}, expected bf16, q8_0 or q4_0", quote(target.linears));
  const std::filesystem::path inputs[] = {checkpoint.dir()};
  check_export_target(target, inputs);
  GgufExport result;
  {
    Progress progress("converting", static_cast<std::int64_t>(checkpoint.names().size()));
    result = export_gguf(
        checkpoint, target.out,
        {.linears = *linears, .weights_only = target.weights_only, .allow_rounding = target.allow_rounding},
        [&](std::int64_t done, std::int64_t) { progress.update(done); });
  }
  for (const std::string& note : result.notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print("{}: gguf, {} tensors, {:.1f} MB\n", target.out, result.tensors,
             1e-6 * static_cast<double>(result.bytes));
}

void to_folder(const Checkpoint& checkpoint, const ExportTarget& target, const RunRecord& run,
               ThreadPool& pool) {
  const auto format = find_export_format(target.to);
  if (!format)
    fail_input(
        "--to is {}, expected halfbyte, bitsandbytes, compressed-tensors, halfbyte-arc, modelopt or gguf",
        quote(target.to));
  if (target.linears != "bf16") fail_input("--linears applies to --to gguf only");
  const std::filesystem::path inputs[] = {checkpoint.dir()};
  refuse_overwriting(target.out, inputs);
  OutputDirectory out(target.out, target.overwrite);
  ExportSummary summary;
  {
    Progress progress("converting", static_cast<std::int64_t>(checkpoint.names().size()));
    summary = export_checkpoint(checkpoint, *format, out.temporary(),
                                {.max_shard_bytes = static_cast<std::int64_t>(target.max_shard_size),
                                 .weights_only = target.weights_only,
                                 .allow_rounding = target.allow_rounding},
                                [&](std::int64_t done, std::int64_t) { progress.update(done); });
  }
  write_manifest(out.temporary(), run, pool);
  out.commit();
  for (const std::string& note : summary.notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print("{}: {}, {} quantized and {} other tensors, {:.1f} MB in {} file{}\n", target.out, target.to,
             summary.quantized, summary.plain, 1e-6 * static_cast<double>(summary.bytes), summary.files,
             summary.files == 1 ? "" : "s");
}

}  // namespace

void add_export_options(CLI::App& command, ExportTarget& target) {
  command
      .add_option("--max-shard-size", target.max_shard_size,
                  "Split exported weights into files of at most this size, like 5GB (0: one file)")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str();
  command.add_flag("--weights-only", target.weights_only, "Export without how activations are rounded");
  command.add_flag("--allow-rounding", target.allow_rounding,
                   "Let an exported global scale whose reciprocal is not exact become the rounded one");
  command.add_flag("--overwrite", target.overwrite, "Replace the output if it is a model");
}

void check_export_target(const ExportTarget& target, std::span<const std::filesystem::path> inputs) {
  if (target.to != "gguf") {
    refuse_overwriting(target.out, inputs);
    const OutputDirectory probe(target.out, target.overwrite);  // leaves nothing behind
    return;
  }
  if (target.max_shard_size)
    fail_input("--max-shard-size does not apply to GGUF, which is written as one file");
  check_output_file(target.out, inputs);
  if (std::filesystem::exists(target.out) && !target.overwrite)
    fail_input("{}: is there already; remove it or give --overwrite", target.out);
}

void export_to(const Checkpoint& checkpoint, const ExportTarget& target, RunRecord run, ThreadPool& pool) {
  run.options["export"] = target.to;
  if (target.weights_only) run.options["weights-only"] = "true";
  if (target.allow_rounding) run.options["allow-rounding"] = "true";
  if (target.max_shard_size) run.options["max-shard-size"] = std::to_string(target.max_shard_size);
  if (target.to == "gguf")
    to_gguf(checkpoint, target);
  else
    to_folder(checkpoint, target, run, pool);
}

}  // namespace halfbyte::cli
