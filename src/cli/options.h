// Options that several subcommands share, spelled and explained once.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "core/thread_pool.h"
#include "model/config.h"

namespace halfbyte::cli {

inline void add_threads(CLI::App& command, int& threads) {
  threads = available_cores();
  command.add_option("--threads", threads, "Threads to use")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

// Says so where more tokens are asked for than the model was made for.
inline void warn_beyond_context(const ModelConfig& config, std::int64_t tokens) {
  if (config.max_positions > 0 && tokens > config.max_positions)
    fmt::print(stderr, "warning: {} tokens are more than the {} positions the model was made for\n", tokens,
               config.max_positions);
}

}  // namespace halfbyte::cli
