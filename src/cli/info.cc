// halfbyte info: what this build is and what the machine offers.
#include <fmt/core.h>
#include <sys/utsname.h>

#include "cli/commands.h"
#include "core/thread_pool.h"

namespace halfbyte::cli {

namespace {

void run() {
  utsname system{};
  uname(&system);
  fmt::print("halfbyte {}\n", HALFBYTE_VERSION);
  fmt::print("compiler   {}\n", __VERSION__);
  fmt::print("system     {} {}, {} cores usable\n", system.sysname, system.machine, available_cores());
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("info", "Build, CPU features, devices and the kernels that would run");
  command->callback(run);
}

}  // namespace halfbyte::cli
