// Loads models on the device that the user names.
#include "cli/engine.h"

#include <fmt/core.h>

#include "gpu/cuda_engine.h"

namespace halfbyte::cli {

void add_device(CLI::App& command, DeviceOptions& options, const std::string& arithmetic) {
  options.arithmetic = arithmetic;
  command.add_option("--device", options.device, "Where the model runs")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command
      .add_option(
          "--arithmetic", options.arithmetic,
          "On a CUDA device: f32 computes what the CPU does; f16 multiplies 4-bit weights on tensor cores")
      ->check(CLI::IsMember({"f32", "f16"}))
      ->capture_default_str();
  command.add_flag("--no-graph", options.no_graph,
                   "On a CUDA device: launch kernels one by one for single tokens");
}

std::unique_ptr<Engine> load_engine(const DeviceOptions& options, const std::string& dir, ThreadPool& pool) {
  const CudaOptions cuda{
      .arithmetic = options.arithmetic == "f16" ? CudaArithmetic::f16 : CudaArithmetic::f32,
      .graph = !options.no_graph};
  std::unique_ptr<Engine> engine =
      options.device == "cuda" ? load_cuda_engine(dir, cuda, pool) : load_cpu_engine(dir, pool);
  for (const std::string& warning : engine->warnings()) fmt::print(stderr, "warning: {}\n", warning);
  return engine;
}

}  // namespace halfbyte::cli
