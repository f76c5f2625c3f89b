// halfbyte bench: how fast this machine runs the ops, compared with the reference before anything is timed.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "cli/bench_matmul.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "core/fail.h"
#include "device/cuda/device.h"
#include "formats/source_dtype.h"
#include "ops/dequantize/config.h"
#include "ops/dequantize/cuda_host.h"
#include "ops/dequantize/op.h"
#include "ops/quantize/op.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::vector<std::string> formats{"nf4",        "nf4-double", "fp4",  "nvfp4", "mxfp4",
                                   "mxfp8_e4m3", "mxfp8_e5m2", "int4", "int8"};
  std::string dtype = "bf16", device = "auto";
  std::int64_t rows = 2048, columns = 2048;
  int threads = 1, repeats = 20;
};

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

template <typename Call>
double time_ms(int repeats, Call call) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return median(times);
}

// GB/s of a copy larger than the caches, by all threads.
double host_copy_rate(int repeats, ThreadPool& pool) {
  const std::int64_t bytes = std::int64_t{128} << 20, piece = std::int64_t{1} << 20;
  Array<std::byte> from(bytes, std::byte{1}), to(bytes, std::byte{2});
  const double ms = time_ms(repeats, [&] {
    pool.parallel_for(bytes / piece, [&](std::int64_t i) {
      std::memcpy(to.data() + i * piece, from.data() + i * piece, static_cast<std::size_t>(piece));
    });
  });
  return 2e-6 * static_cast<double>(bytes) / ms;
}

QuantSpec spec_of(const std::string& name) {
  if (name.ends_with("-double"))
    return {.format = format_from_name(name.substr(0, name.size() - 7)), .double_quant = true};
  const Format format = format_from_name(name);
  if (format == Format::bf16)
    fail_input("--format bf16 needs no dequantization; name a format of 4 or 8 bits");
  return {.format = format};
}

// Reference values rounded to dtype.
Array<std::byte> reference_values(const QuantizedTensor& tensor, const Extent& extent, DType dtype) {
  Array<float> values(extent.elements());
  dequantize_reference({.tensor = &tensor,
                        .columns = extent.columns,
                        .first = 0,
                        .last = extent.elements(),
                        .out = values.data()});
  Array<std::byte> bytes(extent.elements() * dtype_bytes(dtype));
  for (std::int64_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else {
      const std::uint16_t code = dtype == DType::bf16 ? bf16_encode(values[i]) : fp16_encode(values[i]);
      std::memcpy(bytes.data() + 2 * i, &code, 2);
    }
  }
  return bytes;
}

void run_dequant(const Options& options) {
  const DType dtype = options.dtype == "bf16"   ? DType::bf16
                      : options.dtype == "fp16" ? DType::f16
                                                : DType::f32;
  const auto elements = checked_mul(options.rows, options.columns);
  if (!elements || *elements == 0)
    fail_input("{} x {} is no matrix to measure", options.rows, options.columns);
  const bool on_device = options.device == "cuda" || (options.device == "auto" && cuda::available());
  if (on_device) cuda::require_device("bench dequant");
  ThreadPool pool(options.threads);
  Array<float> values(*elements);
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  for (float& value : values) value = normal(random);
  double copy = on_device ? 0.0 : host_copy_rate(options.repeats, pool);
  bool first = true;
  for (const std::string& name : options.formats) {
    const QuantSpec spec = spec_of(name);
    const QuantizedTensor tensor =
        quantize({.dtype = DType::f32, .shape = {options.rows, options.columns}, .data = values.as_bytes()},
                 spec, pool);
    const Extent extent = extent_of(tensor.shape);
    const Array<std::byte> expected = reference_values(tensor, extent, dtype);
    Array<std::byte> out(expected.size(), std::byte{0xA5});
    double ms = 0, bytes_ms = 0;
    if (on_device) {
      const cuda::HostDequantize args{.spec = spec,
                                      .rows = extent.rows,
                                      .columns = extent.columns,
                                      .codes = tensor.codes.span(),
                                      .scales8 = tensor.scales8.span(),
                                      .scales = tensor.scales.span(),
                                      .nested_absmax = tensor.nested_absmax.span(),
                                      .map = kDynamic8Map,
                                      .offset = tensor.offset,
                                      .group = kDynamic8Group,
                                      .global_scale = tensor.global_scale,
                                      .dtype = dtype,
                                      .out = out.span()};
      const cuda::DeviceTime time = cuda::dequantize_through_device(args, options.repeats, true);
      ms = time.milliseconds;
      bytes_ms = time.bytes_milliseconds;
      if (first) copy = time.copy_gbps;
    } else {
      dequantize_rows(tensor, 0, extent.rows, dtype, out.span(), pool);
    }
    if (std::memcmp(out.data(), expected.data(), static_cast<std::size_t>(out.size())) != 0)
      fail(ErrorKind::device, "{} on {} differs from the reference: nothing is timed; please report it", name,
           on_device ? "CUDA" : "the CPU");
    if (!on_device)
      ms =
          time_ms(options.repeats, [&] { dequantize_rows(tensor, 0, extent.rows, dtype, out.span(), pool); });
    if (first)
      fmt::print(
          "{}; {} x {} to {}; copy {:.1f} GB/s; medians of {}\n{:<12} {:>10} {:>9} {:>7} {:>8} {:>13}\n",
          on_device ? cuda::device_info()->name : fmt::format("CPU, {} threads", options.threads),
          options.rows, options.columns, options.dtype, copy, options.repeats, "format", "us", "GB/s",
          "% copy", "% bytes", "Mvalues/s");
    first = false;
    const double rate =
        static_cast<double>(cuda::dequantize_bytes(spec, extent.rows, extent.columns, dtype)) / ms * 1e-6;
    const std::string share = bytes_ms > 0 ? fmt::format("{:.1f}", 100 * bytes_ms / ms) : "-";
    fmt::print("{:<12} {:>10.1f} {:>9.2f} {:>7.1f} {:>8} {:>13.0f}\n", name, 1e3 * ms, rate,
               100 * rate / copy, share, static_cast<double>(*elements) / ms * 1e-3);
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure this machine on the ops");
  command->require_subcommand(1);
  auto options = std::make_shared<Options>();
  CLI::App* dequant = command->add_subcommand("dequant",
                                              "Dequantization of every format: time, GB/s, share of the copy "
                                              "rate and, on CUDA, of the same bytes without arithmetic");
  dequant->add_option("--format", options->formats, "Formats; nf4-double and fp4-double are doubly quantized")
      ->delimiter(',')
      ->capture_default_str();
  dequant->add_option("--rows", options->rows, "Rows of the matrix")->capture_default_str();
  dequant->add_option("--columns", options->columns, "Columns of the matrix")->capture_default_str();
  dequant->add_option("--dtype", options->dtype, "Type of the values")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32"}))
      ->capture_default_str();
  dequant->add_option("--device", options->device, "Where to decode")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  dequant->add_option("--repeats", options->repeats, "Runs of which the median is shown")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add_threads(*dequant, options->threads);
  dequant->callback([options] { run_dequant(*options); });
  add_bench_matmul(*command);
}

}  // namespace halfbyte::cli
