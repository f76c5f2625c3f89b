// The optimisation ladder of NF4 dequantization: checks every rung against the codec, times all, prints a table and
// writes JSON.  ladder [--sizes 4096,8192] [--repeats 60] [--only NAME] [--sweep] [--once] [--json FILE]
//               [--bitsandbytes FILE]   FILE as tools/gpu/bench_bitsandbytes.py writes it
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/gpu/harness.h"
#include "bench/ladder/variants.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "formats/bf16.h"
#include "formats/dynamic8.h"
#include "formats/nf4.h"
#include "formats/packing.h"
#include "ops/dequantize/config.h"

namespace halfbyte::ladder {

namespace {

using nlohmann::json;

struct Options : bench::CommonOptions {
  std::string only, peer_file;
  bool sweep = false, once = false;
};

// A matrix of size x size codes with all that belongs to it, on the device, and what the codec makes of it.
struct Case {
  static constexpr int kBlock = 64, kGroup = 256;
  std::int64_t elements;
  cuda::Buffer<std::uint8_t> codes, absmax;
  cuda::Buffer<float> nested, map;
  cuda::Buffer<std::uint16_t> expected, out[2];
  float offset = 0.0371f;

  explicit Case(std::int64_t size)
      : elements(size * size),
        codes(elements / 2),
        absmax(elements / kBlock),
        nested(elements / kBlock / kGroup),
        map(std::span<const float>(kDynamic8Map)),
        expected(elements),
        out{cuda::Buffer<std::uint16_t>(elements), cuda::Buffer<std::uint16_t>(elements)} {
    bench::fill_random(codes.data(), codes.size(), 11);
    bench::fill_random(absmax.data(), absmax.size(), 12);
    std::vector<float> host_nested(static_cast<std::size_t>(nested.size()));
    for (std::size_t i = 0; i < host_nested.size(); ++i)
      host_nested[i] = 0.01f + 0.00013f * static_cast<float>(i * 7919 % 1000);
    nested = cuda::Buffer<float>(std::span<const float>(host_nested));
    const auto host_codes = codes.download();
    const auto host_absmax = absmax.download();
    std::vector<std::uint16_t> host(static_cast<std::size_t>(elements));
    ThreadPool pool(available_cores());
    pool.parallel_for(elements / kBlock, [&](std::int64_t block) {
      const auto b = static_cast<std::size_t>(block);
      const float scale = dynamic8_decode(kDynamic8Map[host_absmax[b]], host_nested[b / kGroup], offset);
      for (std::int64_t i = block * kBlock; i < (block + 1) * kBlock; ++i)
        host[static_cast<std::size_t>(i)] =
            bf16_encode(mul_rn(nf4_decode(nibble(NibbleOrder::high_first, host_codes.data(), i)), scale));
    });
    expected = cuda::Buffer<std::uint16_t>(std::span<const std::uint16_t>(host));
  }

  Input input(int turn) const {
    return {.codes = codes.data(),
            .absmax = absmax.data(),
            .nested = nested.data(),
            .map = map.data(),
            .offset = offset,
            .block = kBlock,
            .group = kGroup,
            .elements = elements,
            .out = out[turn & 1].data()};
  }
  double bytes() const {
    const QuantSpec spec{.format = Format::nf4, .double_quant = true};
    return static_cast<double>(cuda::dequantize_bytes(spec, 1, elements, DType::bf16));
  }
};

Options parse(int argc, char** argv) {
  Options options;
  options.sizes = {4096, 8192, 16384};
  bench::parse_options(argc, argv, "ladder", options, [&](const std::string& flag, bench::NextValue& value) {
    if (flag == "--sweep")
      options.sweep = true;
    else if (flag == "--once")
      options.once = true;
    else if (flag == "--only")
      options.only = value();
    else if (flag == "--bitsandbytes")
      options.peer_file = value();
    else
      return false;
    return true;
  });
  for (const std::int64_t size : options.sizes)
    if (size < 128 || size > 32768 || size % 128)
      fail_input("ladder: size {}, expected a multiple of 128 up to 32768", size);
  return options;
}

bool chosen(const Options& options, const Variant& variant) {
  if (!options.only.empty()) return options.only == variant.name;
  return variant.listed || options.sweep;
}

int run(const Options& options) {
  const auto device = cuda::device_info();
  if (!device) {
    fmt::print("SKIPPED: no CUDA device; nothing was measured\n");
    return 0;
  }
  cuda::require_device("the ladder");
  cuda::check_status(set_constant_map(kDynamic8Map.data()), "copying the map");
  json peer;
  if (!options.peer_file.empty()) std::ifstream(options.peer_file) >> peer;

  if (options.once) {  // for a profiler: each rung once, no timing
    for (const std::int64_t size : options.sizes) {
      const Case problem(size);
      for (const Variant& variant : variants())
        if (chosen(options, variant))
          cuda::check_status(variant.launch(problem.input(0), nullptr), variant.name);
      cuda::check_status(cudaDeviceSynchronize(), "running the ladder");
    }
    return 0;
  }

  bench::Harness harness(options);
  const double copy = harness.copy_rate(), empty = harness.empty_call();
  fmt::print("{}, {} multiprocessors; copy {:.0f} GB/s; an empty launch reads {:.2f} us; medians of {}\n",
             device->name, device->multiprocessors, copy, empty, options.repeats);
  json result = bench::new_result(device->name, copy, options);
  result["empty_us"] = empty;
  result["format"] = "nf4 block 64 double_quant to bf16";
  int failures = 0;
  for (const std::int64_t size : options.sizes) {
    Case problem(size);
    std::vector<std::pair<const Variant*, bench::Sample>> rows;
    double floor_us = 1e30;  // the fastest kernel that only moves the bytes
    for (const Variant& variant : variants()) {
      if (!chosen(options, variant)) continue;
      if (variant.computes) {
        problem.out[0].fill(0xA5);
        cuda::check_status(variant.launch(problem.input(0), nullptr), variant.name);
        const std::int64_t wrong =
            bench::count_differences(problem.out[0].data(), problem.expected.data(), 2 * problem.elements);
        if (wrong) {
          fmt::print("FAILED {} at {}^2: {} bytes differ from the codec\n", variant.name, size, wrong);
          ++failures;
        }
      }
      const auto sample = harness.time(
          [&](int turn) { cuda::check_status(variant.launch(problem.input(turn), nullptr), variant.name); });
      if (!variant.computes) floor_us = std::min(floor_us, sample.median);
      rows.emplace_back(&variant, sample);
    }
    const double peer_us =
        peer.contains("whole_call_us") && peer["whole_call_us"].contains(std::to_string(size))
            ? peer["whole_call_us"][std::to_string(size)].get<double>()
            : 0.0;
    fmt::print("\n{}^2, {:.1f} MB\n{:<14} {:>9} {:>8} {:>7} {:>8} {:>7}  {}\n", size, problem.bytes() * 1e-6,
               "rung", "us", "GB/s", "% copy", "% bytes", "x bnb", "what changed");
    for (const auto& [variant, sample] : rows) {
      const double rate = bench::gigabytes_per_second(problem.bytes(), sample.median);
      fmt::print("{:<14} {:>9.2f} {:>8.0f} {:>7.1f} {:>8.1f} {:>7}  {}\n", variant->name, sample.median, rate,
                 100 * rate / copy, floor_us < 1e29 ? 100 * floor_us / sample.median : 0.0,
                 peer_us > 0 ? fmt::format("{:.2f}", peer_us / sample.median) : "-", variant->idea);
      json row{{"size", size},
               {"name", variant->name},
               {"idea", variant->idea},
               {"us", sample.median},
               {"lowest_us", sample.lowest},
               {"gbps", rate},
               {"share_of_copy", rate / copy}};
      if (floor_us < 1e29) row["share_of_bytes"] = floor_us / sample.median;
      if (peer_us > 0) row["times_bitsandbytes"] = peer_us / sample.median;
      result["rows"].push_back(std::move(row));
    }
  }
  bench::write_result(result, options);
  fmt::print("\n{}\n", failures ? "FAILED: see above" : "every rung agrees with the codec, bit for bit");
  return failures ? 1 : 0;
}

}  // namespace

}  // namespace halfbyte::ladder

int main(int argc, char** argv) {
  try {
    return halfbyte::ladder::run(halfbyte::ladder::parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "ladder: {}\n", error.what());
    return 2;
  }
}
