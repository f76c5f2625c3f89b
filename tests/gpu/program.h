// What the GPU test programs share: they skip aloud without a device, and end in an exit code.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <exception>

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
