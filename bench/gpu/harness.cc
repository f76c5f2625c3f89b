// Timing, ceilings and comparison for the GPU benchmarks.
#include "bench/gpu/harness.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/gpu/kernels.h"
#include "core/fail.h"

namespace halfbyte::bench {

using cuda::check_status;

std::string NextValue::operator()() {
  if (at_ + 1 >= argc_) fail_input("{} wants a value", argv_[at_]);
  return argv_[++at_];
}

void parse_options(int argc, char** argv, const char* program, CommonOptions& common,
                   const std::function<bool(const std::string&, NextValue&)>& take) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    NextValue value(i, argc, argv);
    if (flag == "--repeats") {
      common.repeats = std::stoi(value());
      if (common.repeats < 1) fail_input("{}: {} repeats, expected at least 1", program, common.repeats);
    } else if (flag == "--warm-up") {
      common.warm_up_ms = std::stoi(value());
    } else if (flag == "--json") {
      common.json_file = value();
    } else if (flag == "--sizes") {
      const std::string list = value();
      common.sizes.clear();
      for (std::size_t at = 0; at < list.size();) {
        const std::size_t end = std::min(list.find(',', at), list.size());
        common.sizes.push_back(std::stoll(list.substr(at, end - at)));
        at = end + 1;
      }
    } else if (!take(flag, value)) {
      fail_input("{}: unknown option {}", program, flag);
    }
  }
}

nlohmann::json new_result(const std::string& device, double copy_gbps, const CommonOptions& common) {
  return {{"device", device},
          {"copy_gbps", copy_gbps},
          {"repeats", common.repeats},
          {"rows", nlohmann::json::array()}};
}

void write_result(const nlohmann::json& result, const CommonOptions& common) {
  if (!common.json_file.empty()) std::ofstream(common.json_file) << result.dump(1) << '\n';
}

Harness::Harness(const CommonOptions& options)
    : repeats_(options.repeats),
      warm_up_ms_(options.warm_up_ms),
      flush_(std::int64_t{256} << 20),
      timers_(options.repeats) {}

Sample Harness::time(const std::function<void(int)>& call) {
  for (int i = 0; i < 3; ++i) call(i);
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(warm_up_ms_)) {
    for (int i = 0; i < 3; ++i) call(i);
    check_status(cudaDeviceSynchronize(), "warming up");
  }
  for (int i = 0; i < repeats_; ++i) {
    check_status(cudaMemsetAsync(flush_.data(), i & 255, flush_.bytes(), nullptr), "flushing the L2");
    timers_[i].start();
    call(i);
    timers_[i].stop();
  }
  std::vector<double> times;
  for (const cuda::Timer& timer : timers_) times.push_back(1e3 * timer.milliseconds());
  std::sort(times.begin(), times.end());
  return {.median = times[times.size() / 2], .lowest = times.front(), .repeats = repeats_};
}

double Harness::copy_rate() {
  const std::int64_t bytes = std::int64_t{1} << 30;
  cuda::Buffer<std::uint8_t> from(bytes), to(bytes);
  fill_random(from.data(), bytes, 1);
  const Sample sample = time([&](int) {
    check_status(cudaMemcpyAsync(to.data(), from.data(), from.bytes(), cudaMemcpyDeviceToDevice, nullptr),
                 "copying");
  });
  return gigabytes_per_second(2.0 * static_cast<double>(bytes), sample.median);
}

double Harness::empty_call() {
  return time([](int) { check_status(launch_nothing(nullptr), "launching nothing"); }).median;
}

std::int64_t count_differences(const void* a, const void* b, std::int64_t bytes) {
  cuda::Buffer<unsigned long long> count(1);
  count.fill(0);
  check_status(launch_compare(a, b, bytes, count.data(), nullptr), "comparing");
  return static_cast<std::int64_t>(count.download()[0]);
}

void fill_random(void* data, std::int64_t bytes, std::uint64_t seed) {
  check_status(launch_random(data, bytes, seed, nullptr), "filling with random bytes");
}

}  // namespace halfbyte::bench
