// How GPU kernels are timed here: the L2 is overwritten before every repeat, events around the call, the median counts.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "device/cuda/memory.h"

namespace halfbyte::bench {

// What every GPU benchmark takes: --sizes 4096,8192  --repeats N  --warm-up MS  --json FILE
struct CommonOptions {
  std::vector<std::int64_t> sizes;  // rows and columns of square matrices
  int repeats = 60;
  int warm_up_ms =
      0;  // before each timing: power and clocks then are those of a device that has been busy for a while
  std::string json_file;
};

// The argument after a flag; throws bad_input where there is none.
class NextValue {
 public:
  NextValue(int& at, int argc, char** argv) : at_(at), argc_(argc), argv_(argv) {}
  std::string operator()();

 private:
  int& at_;
  int argc_;
  char** argv_;
};

// Reads the command line: common options into `common`, others by take(), which returns whether it knows the flag. Throws
// bad_input, naming `program`.
void parse_options(int argc, char** argv, const char* program, CommonOptions& common,
                   const std::function<bool(const std::string& flag, NextValue& value)>& take);

// {"device", "copy_gbps", "repeats", "rows": []}, to be filled, and written where --json names a file.
nlohmann::json new_result(const std::string& device, double copy_gbps, const CommonOptions& common);
void write_result(const nlohmann::json& result, const CommonOptions& common);

struct Sample {
  double median = 0, lowest = 0;  // microseconds
  int repeats = 0;
};

class Harness {
 public:
  explicit Harness(const CommonOptions& options);

  // Runs call(repeat) `repeats` times, each after 256 MB of other data went through the L2; before that three times, and on
  // for the warm-up.
  Sample time(const std::function<void(int)>& call);

  double copy_rate();   // GB/s, bytes read and written by a copy of 1 GB
  double empty_call();  // microseconds that a launch of nothing takes in this timing

 private:
  int repeats_, warm_up_ms_;
  cuda::Buffer<std::uint8_t> flush_;
  std::vector<cuda::Timer> timers_;
};

inline double gigabytes_per_second(double bytes, double microseconds) { return bytes / microseconds * 1e-3; }

// Number of bytes in which a and b differ; both on the device.
std::int64_t count_differences(const void* a, const void* b, std::int64_t bytes);

// Device memory filled with pseudo-random bytes that depend on the seed alone.
void fill_random(void* data, std::int64_t bytes, std::uint64_t seed);

}  // namespace halfbyte::bench
