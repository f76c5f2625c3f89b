// Options that several subcommands share, spelled and explained once.
#pragma once

#include <CLI/CLI.hpp>

#include "core/thread_pool.h"

namespace halfbyte::cli {

inline void add_threads(CLI::App& command, int& threads) {
  threads = available_cores();
  command.add_option("--threads", threads, "Threads to use")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

}  // namespace halfbyte::cli
