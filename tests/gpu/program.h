// What the GPU test programs share: they skip aloud without a device, and end in an exit code.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <exception>
#include <string>

#include "core/fail.h"
#include "device/cuda/device.h"

namespace halfbyte::test {

// Names the device and the seed; false, with a word on it, where there is none.
inline bool device_is_there(std::uint64_t seed) {
  const auto device = cuda::device_info();
  if (!device) {
    fmt::print("SKIPPED: no CUDA device on this machine; the CUDA kernels were not run\n");
    return false;
  }
  fmt::print("{} (compute capability {}.{}), seed {}\n", device->name, device->major, device->minor, seed);
  cuda::require_device("the tests");
  return true;
}

inline int exit_code(std::int64_t passed, std::int64_t failed) {
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed ? 1 : 0;
}

// What a test over random shapes takes: [--reduced] [--shapes N] [--seed N].
struct ShapeOptions {
  bool reduced = false;  // few cases, for compute-sanitizer
  std::int64_t shapes = 0;
  std::uint64_t seed = 0;
};

inline ShapeOptions parse_shape_options(const char* program, int argc, char** argv, ShapeOptions options,
                                        std::int64_t reduced_shapes) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--reduced")
      options.reduced = true, options.shapes = reduced_shapes;
    else if (flag == "--shapes" && i + 1 < argc)
      options.shapes = std::stoll(argv[++i]);
    else if (flag == "--seed" && i + 1 < argc)
      options.seed = std::stoull(argv[++i]);
    else
      fail_input("{}: unknown option {}", program, flag);
  }
  return options;
}

// Counts cases, and prints the first that failed.
struct Tally {
  std::int64_t passed = 0, failed = 0;
  void add(const std::string& problem, const std::string& what) {  // no problem: an empty one
    ++(problem.empty() ? passed : failed);
    if (!problem.empty() && failed <= 40) fmt::print("FAILED {}: {}\n", what, problem);
  }
};

// For main(): what run(argc, argv) returns; 2 for an exception, which is printed.
inline int program(const char* name, int argc, char** argv, int (*run)(int, char**)) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 2;
  }
}

}  // namespace halfbyte::test
