// Where a model runs: the option of commands that run one, and the model loaded there.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "core/thread_pool.h"
#include "model/session.h"

namespace halfbyte::cli {

void add_device(CLI::App& command, std::string& device);

// device: "cpu" or "cuda". Prints the model's warnings.
std::unique_ptr<Engine> load_engine(const std::string& device, const std::string& dir, ThreadPool& pool);

}  // namespace halfbyte::cli
