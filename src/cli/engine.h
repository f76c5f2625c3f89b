// Where a model runs: the option of commands that run one, and the model loaded there.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "core/thread_pool.h"
#include "model/session.h"

namespace halfbyte::cli {

struct DeviceOptions {
  std::string device = "cpu", arithmetic;  // "cuda"; of a CUDA device: "f32", "f16"
  bool no_graph = false;
};

// arithmetic: what the command takes unless it is told otherwise.
void add_device(CLI::App& command, DeviceOptions& options, const std::string& arithmetic);

// Prints the model's warnings.
std::unique_ptr<Engine> load_engine(const DeviceOptions& options, const std::string& dir, ThreadPool& pool);

}  // namespace halfbyte::cli
