// Timing, ceilings and comparison for the GPU benchmarks.
#include "bench/gpu/harness.h"

#include <algorithm>

#include "bench/gpu/kernels.h"

namespace halfbyte::bench {

using cuda::check_status;

Harness::Harness(int repeats) : repeats_(repeats), flush_(std::int64_t{256} << 20), timers_(repeats) {}

Sample Harness::time(const std::function<void(int)>& call) {
  for (int i = 0; i < 3; ++i) call(i);
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
