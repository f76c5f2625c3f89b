// What convert and quantize --export share: writing a checkpoint for another engine.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

namespace halfbyte::cli {

struct ExportTarget {
  std::string to = "halfbyte", out, linears = "bf16";
  std::uint64_t max_shard_size = 0;
  bool weights_only = false, allow_rounding = false, overwrite = false;
};

// --max-shard-size, --weights-only, --allow-rounding, --overwrite; not --to and --output, which the commands name themselves.
void add_export_options(CLI::App& command, ExportTarget& target);

// Throws what writing there would throw, before any work is done.
void check_export_target(const ExportTarget& target, std::span<const std::filesystem::path> inputs);

// Writes target.out, a folder with a manifest or for gguf a file, and prints what it became. run: what the checkpoint was made
// from; the layout is added to its options.
void export_to(const Checkpoint& checkpoint, const ExportTarget& target, RunRecord run, ThreadPool& pool);

}  // namespace halfbyte::cli
