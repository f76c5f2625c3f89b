// halfbyte info: what this build is, what the machine offers and which kernels would run.
#include <fmt/core.h>
#include <sys/utsname.h>

#include "cli/commands.h"
#include "core/thread_pool.h"
#include "device/cuda/device.h"
#include "ops/registry.h"
#include "ops/row_math/op.h"

namespace halfbyte::cli {

namespace {

void run() {
  utsname system{};
  uname(&system);
  fmt::print("halfbyte {}\n", HALFBYTE_VERSION);
  fmt::print("compiler   {}\n", __VERSION__);
  fmt::print("system     {} {}, {} cores usable\n", system.sysname, system.machine, available_cores());
  fmt::print("vectors    {}\n", row_math_target());
  const auto device = cuda::device_info();
  fmt::print("cuda       {}\n\n", !cuda::built() ? "not in this build"
                                  : !device      ? "in this build, no device here"
                                                 : fmt::format("{}, compute capability {}.{}", device->name,
                                                               device->major, device->minor));
  fmt::print("{:<34} {:<12} {}\n", "kernel", "device", "here");
  for (const KernelRow& row : all_kernels())
    fmt::print("{:<34} {:<12} {}\n", fmt::format("{}/{}", row.op, row.name), row.device,
               row.available() ? "yes" : "no");
  fmt::print(
      "\nCUDA kernels are compiled for sm_80, sm_90a, sm_100a and sm_120a; so far they have run on sm_90 "
      "only. matmul_nvfp4_native has never run on a Blackwell device.\n");
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("info", "Build, CPU features, devices and the kernels that would run");
  command->footer(
      "The first kernel of an op that is available here runs; HALFBYTE_FORCE=quantize/reference picks "
      "another.");
  command->callback(run);
}

}  // namespace halfbyte::cli
