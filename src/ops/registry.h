// Which implementation of an op runs: one row each, in order of preference, chosen by availability or the
// user.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace halfbyte {

struct KernelRow {
  std::string_view op;      // "quantize"
  std::string_view name;    // "cpu"; op/name is what HALFBYTE_FORCE takes
  std::string_view device;  // "cpu", "cuda sm_90"
  bool (*available)();      // on this machine, now
};

constexpr bool always_available() { return true; }

// Every row of every op, the CUDA kernels too.
std::vector<KernelRow> all_kernels();

// Index of the row to run: the one named in the environment variable HALFBYTE_FORCE ("quantize/reference",
// several separated by commas), else the first that is available. A name that no row has, or a row that is
// not available here, is an error.
std::size_t choose_kernel(std::span<const KernelRow> rows);

}  // namespace halfbyte
