// The fused activation kernel: time, GB/s of the bytes it must read and write, and its share of what a device-to-device copy
// of as many bytes reaches in the same run. A few rows are compared with the reference first.
//   bench_fused [--repeats 60] [--warm-up MS] [--json FILE]
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "bench/gpu/harness.h"
#include "core/fail.h"
#include "formats/quantized_tensor.h"
#include "formats/source_dtype.h"
#include "ops/fused_activation/cuda.h"

namespace halfbyte::bench {

namespace {

using cuda::Buffer;

struct Shape {
  ActivationForm form;
  std::int64_t rows, columns, chosen;
  QuantSpec spec;
  bool ordered = false;
};

const char* name(ActivationForm form) {
  return form == ActivationForm::plain ? "plain" : form == ActivationForm::norm ? "add + norm" : "silu * up";
}

Buffer<std::uint16_t> random_bf16(std::int64_t count, std::uint64_t seed) {
  std::vector<std::uint16_t> host(static_cast<std::size_t>(count));
  std::uint64_t state = seed * 2654435761u + 1;
  for (auto& code : host) {
    float sum = 0;  // of four uniform numbers: near enough to a normal one
    for (int i = 0; i < 4; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<float>(state >> 40) * 0x1p-24f - 0.5f;
    }
    code = bf16_encode(sum * 1.7f);
  }
  return Buffer<std::uint16_t>(std::span<const std::uint16_t>(host));
}

// A period of random values, repeated over the whole buffer.
Buffer<std::uint16_t> long_random(std::int64_t count, std::uint64_t seed) {
  Buffer<std::uint16_t> all(count);
  const std::int64_t period = std::min<std::int64_t>(count, 1 << 21);
  const auto some = random_bf16(period, seed);
  for (std::int64_t at = 0; at < count; at += period)
    cuda::check_status(
        cudaMemcpy(all.data() + at, some.data(), static_cast<std::size_t>(std::min(period, count - at)) * 2,
                   cudaMemcpyDeviceToDevice),
        "copying");
  return all;
}

struct Problem {
  Shape shape;
  Buffer<std::uint16_t> x, other, out, weight;
  Buffer<std::int32_t> order, chosen;
  Buffer<float> global;
  Buffer<std::uint8_t> codes, scales;
  float host_global = 0x1p-9f;

  explicit Problem(const Shape& what) : shape(what) {
    const std::int64_t size = shape.rows * shape.columns;
    x = long_random(size, 1);
    if (shape.form != ActivationForm::plain) other = long_random(size, 2);
    if (shape.form == ActivationForm::norm) out = Buffer<std::uint16_t>(size);
    weight = random_bf16(shape.columns, 3);
    std::vector<std::int32_t> list(static_cast<std::size_t>(shape.columns));
    for (std::size_t i = 0; i < list.size();
         ++i)  // a permutation: 4099 is prime and larger than no column count here divides
      list[i] = static_cast<std::int32_t>(i * 4099 % list.size());
    order = Buffer<std::int32_t>(std::span<const std::int32_t>(list));
    chosen = Buffer<std::int32_t>(
        std::span<const std::int32_t>(list).first(static_cast<std::size_t>(shape.chosen)));
    global = Buffer<float>(std::span<const float>(&host_global, 1));
    const std::int64_t block = effective_block(shape.spec, 0), width = shape.columns + shape.chosen;
    codes = Buffer<std::uint8_t>(shape.rows * width / 2);
    scales = Buffer<std::uint8_t>(shape.rows * width / block);
  }

  FusedActivation args() const {
    FusedActivation a;
    a.rows = shape.rows;
    a.columns = a.x_stride = a.up_stride = shape.columns;
    a.form = shape.form;
    a.x = x.data();
    if (shape.form == ActivationForm::silu_mul) a.up = other.data();
    if (shape.form == ActivationForm::norm) {
      a.residual = other.data();
      a.residual_out = out.data();
      a.norm_weight = weight.data();
      a.norm_dtype = DType::bf16;
      a.eps = 1e-5f;
    }
    if (shape.ordered) a.order = order.data(), a.width = shape.columns;
    a.chosen = chosen.data();
    a.chosen_count = shape.chosen;
    a.spec = shape.spec;
    a.global_scale = global.data();
    a.codes = codes.data();
    a.scales = scales.data();
    return a;
  }
  // What has to be read and written once.
  std::int64_t bytes() const {
    const std::int64_t values = shape.rows * shape.columns * 2;
    return values * (1 + (shape.form != ActivationForm::plain) + (shape.form == ActivationForm::norm)) +
           codes.size() + scales.size();
  }

  bool agrees() const {
    FusedActivation a = args();
    cuda::fused_activation(a, nullptr);
    const std::int64_t rows = 4, row_codes = codes.size() / shape.rows,
                       row_scales = scales.size() / shape.rows;
    const auto copy = [&](const auto& from, std::int64_t count) {
      std::vector<std::remove_pointer_t<decltype(from.data())>> host(
          static_cast<std::size_t>(from.size() ? count : 0));
      if (!host.empty())
        cuda::check_status(
            cudaMemcpy(host.data(), from.data(), host.size() * sizeof host[0], cudaMemcpyDeviceToHost),
            "copying");
      return host;
    };
    const auto hx = copy(x, rows * shape.columns), hother = copy(other, rows * shape.columns);
    const auto hweight = weight.download();
    const auto horder = order.download(), hchosen = chosen.download();
    std::vector<std::uint16_t> hout(hx.size());
    std::vector<std::uint8_t> hcodes(static_cast<std::size_t>(rows * row_codes)),
        hscales(static_cast<std::size_t>(rows * row_scales));
    a.rows = rows;
    a.x = hx.data();
    if (a.up) a.up = hother.data();
    if (a.residual) a.residual = hother.data(), a.residual_out = hout.data(), a.norm_weight = hweight.data();
    if (a.order) a.order = horder.data();
    a.chosen = hchosen.data();
    a.global_scale = &host_global;
    a.codes = hcodes.data();
    a.scales = hscales.data();
    ThreadPool pool(1);
    fused_activation_reference(a, pool);
    return copy(codes, rows * row_codes) == hcodes && copy(scales, rows * row_scales) == hscales &&
           (!a.residual || copy(out, rows * shape.columns) == hout);
  }
};

int run(int argc, char** argv) {
  CommonOptions options;
  parse_options(argc, argv, "bench_fused", options, [](const std::string&, NextValue&) { return false; });
  const auto device = cuda::device_info();
  if (!device) {
    fmt::print("SKIPPED: no CUDA device; nothing was measured\n");
    return 0;
  }
  cuda::require_device("bench_fused");
  Harness harness(options);
  const double copy_gbps = harness.copy_rate();
  nlohmann::json result = new_result(device->name, copy_gbps, options);
  const QuantSpec nvfp4{.format = Format::nvfp4}, mxfp4{.format = Format::mxfp4};
  const QuantSpec search{.format = Format::nvfp4, .scale_search = true};
  std::vector<Shape> shapes;
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{8192, 4096}, {2048, 8192}})
    for (const QuantSpec& spec : {nvfp4, mxfp4, search})
      for (const std::int64_t chosen : {0, 256})
        shapes.push_back({ActivationForm::norm, rows, columns, chosen, spec});
  shapes.push_back({ActivationForm::norm, 8192, 4096, 256, nvfp4, true});
  for (const std::int64_t chosen : {0, 256}) {
    shapes.push_back({ActivationForm::plain, 8192, 4096, chosen, nvfp4});
    shapes.push_back({ActivationForm::silu_mul, 2048, 14336, chosen, nvfp4});
  }
  fmt::print("{}; a copy of 1 GB moves {:.0f} GB/s; medians of {}; an empty launch reads {:.2f} us\n",
             device->name, copy_gbps, options.repeats, harness.empty_call());
  fmt::print("{:<11} {:>11} {:>4} {:<26} {:>8} {:>7} {:>9} {:>7} {:>7}\n", "form", "M x K", "S", "format",
             "us", "GB/s", "copy us", "% copy", "% 1 GB");
  int failures = 0;
  for (const Shape& shape : shapes) {
    const Problem problem(shape);
    const bool good = problem.agrees();
    failures += !good;
    const FusedActivation args = problem.args();
    const Sample ours = harness.time([&](int) { cuda::fused_activation(args, nullptr); });
    const std::int64_t half = problem.bytes() / 2;
    const Buffer<std::uint8_t> from(half), to(half);
    fill_random(from.data(), half, 1);
    const Sample copy = harness.time([&](int) {
      cuda::check_status(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(half),
                                         cudaMemcpyDeviceToDevice, nullptr),
                         "copying");
    });
    const double gbps = gigabytes_per_second(static_cast<double>(problem.bytes()), ours.median);
    const std::string format = to_string(shape.spec) + (shape.ordered ? ", ordered" : "");
    fmt::print("{:<11} {:>11} {:>4} {:<26} {:>8.1f} {:>7.0f} {:>9.1f} {:>7.1f} {:>7.1f}{}\n",
               name(shape.form), fmt::format("{}x{}", shape.rows, shape.columns), shape.chosen, format,
               ours.median, gbps, copy.median, 100 * copy.median / ours.median, 100 * gbps / copy_gbps,
               good ? "" : "  DIFFERS FROM THE REFERENCE");
    result["rows"].push_back({{"form", name(shape.form)},
                              {"rows", shape.rows},
                              {"columns", shape.columns},
                              {"residual", shape.chosen},
                              {"format", format},
                              {"us", ours.median},
                              {"gbps", gbps},
                              {"copy_us", copy.median},
                              {"share_of_copy", copy.median / ours.median},
                              {"agrees", good}});
  }
  write_result(result, options);
  return failures ? 1 : 0;
}

}  // namespace

}  // namespace halfbyte::bench

int main(int argc, char** argv) {
  try {
    return halfbyte::bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_fused: {}\n", error.what());
    return 2;
  }
}
