// halfbyte info: what this build is, what the machine offers and which kernels would run.
#include <fmt/core.h>
#include <sys/utsname.h>

#include "cli/commands.h"
#include "core/thread_pool.h"
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
  fmt::print("vectors    {}\n\n", row_math_target());
  fmt::print("{:<34} {:<12} {}\n", "kernel", "device", "here");
  for (const KernelRow& row : all_kernels())
    fmt::print("{:<34} {:<12} {}\n", fmt::format("{}/{}", row.op, row.name), row.device,
               row.available() ? "yes" : "no");
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
