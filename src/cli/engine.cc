// Loads models on the device that the user names.
#include "cli/engine.h"

#include <fmt/core.h>

#include "gpu/cuda_engine.h"

namespace halfbyte::cli {

void add_device(CLI::App& command, std::string& device) {
  device = "cpu";
  command.add_option("--device", device, "Where the model runs")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
}

std::unique_ptr<Engine> load_engine(const std::string& device, const std::string& dir, ThreadPool& pool) {
  std::unique_ptr<Engine> engine =
      device == "cuda" ? load_cuda_engine(dir, pool) : load_cpu_engine(dir, pool);
  for (const std::string& warning : engine->warnings()) fmt::print(stderr, "warning: {}\n", warning);
  return engine;
}

}  // namespace halfbyte::cli
