// Every CUDA dequantizer and quantizer: time, GB/s, share of the copy rate and of the same bytes without arithmetic.
//   bench_ops [--sizes 16384] [--repeats 60] [--warm-up MS] [--json FILE] [--all-types] [--only TEXT]
// What the ops compute is checked by gpu_test; here each op's output is compared with itself decoded by the codec in a
// sample of blocks before it is timed.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/gpu/bytes_kernels.h"
#include "bench/gpu/harness.h"
#include "formats/dynamic8.h"
#include "ops/dequantize/config.h"
#include "ops/dequantize/cuda.h"
#include "ops/dequantize/launch.h"
#include "ops/dequantize/op.h"
#include "ops/quantize/cuda.h"
#include "ops/quantize/launch.h"
#include "ops/quantize/op.h"

namespace halfbyte::bench {

namespace {

using cuda::Buffer;
using nlohmann::json;

struct Options : CommonOptions {
  bool all_types = false;
  std::string only;  // formats whose description holds this
};

Options parse(int argc, char** argv) {
  Options options;
  options.sizes = {16384};
  bench::parse_options(argc, argv, "bench_ops", options, [&](const std::string& flag, NextValue& value) {
    if (flag == "--all-types")
      options.all_types = true;
    else if (flag == "--only")
      options.only = value();
    else
      return false;
    return true;
  });
  return options;
}

// A quantized matrix on the device, made by the quantizer under test from random numbers.
struct Problem {
  QuantSpec spec;
  std::int64_t size;
  DType dtype;
  Buffer<std::uint8_t> values, out;
  Buffer<std::uint8_t> codes, scales8;
  Buffer<float> scales, nested, offset, map, global;
  Buffer<std::uint32_t> workspace;
  float host_offset = 0.0f;

  Problem(const QuantSpec& what, std::int64_t n, DType type) : spec(what), size(n), dtype(type) {
    const PartSizes parts = part_sizes(spec, {n, n});
    const std::int64_t elements = n * n, bytes = elements * dtype_bytes(type);
    values = Buffer<std::uint8_t>(bytes);
    out = Buffer<std::uint8_t>(bytes);
    codes = Buffer<std::uint8_t>(parts.codes);
    scales8 = Buffer<std::uint8_t>(parts.scales8);
    scales = Buffer<float>(spec.double_quant ? parts.blocks : parts.scales);
    nested = Buffer<float>(parts.nested_absmax);
    offset = Buffer<float>(1);
    map = Buffer<float>(std::span<const float>(kDynamic8Map));
    global = Buffer<float>(1);
    workspace = Buffer<std::uint32_t>(std::max<std::int64_t>(cuda::quantize_workspace(spec), 1));
    // Random bits with exponents that make numbers of 2^-8 to 2^0, in a period of 4 MB.
    std::vector<std::uint8_t> random(static_cast<std::size_t>(std::min<std::int64_t>(bytes, 4 << 20)));
    Buffer<std::uint8_t> seed(static_cast<std::int64_t>(random.size()));
    fill_random(seed.data(), seed.size(), 9);
    seed.download(std::span<std::uint8_t>(random));
    const std::size_t width = static_cast<std::size_t>(dtype_bytes(type));
    for (std::size_t i = 0; i + width <= random.size(); i += width) {
      const float x =
          (static_cast<float>(random[i]) - 127.5f) * (static_cast<float>(random[i + 1]) + 1.0f) * 1e-5f;
      if (type == DType::f32) {
        std::memcpy(&random[i], &x, 4);
      } else {
        const std::uint16_t code = type == DType::bf16 ? bf16_encode(x) : fp16_encode(x);
        std::memcpy(&random[i], &code, 2);
      }
    }
    for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(random.size()))
      cuda::check_status(
          cudaMemcpy(values.data() + at, random.data(),
                     std::min<std::size_t>(random.size(), static_cast<std::size_t>(bytes - at)),
                     cudaMemcpyHostToDevice),
          "copying values");
    cuda::quantize(quantize_args(), nullptr);
    if (spec.double_quant) host_offset = offset.download()[0];
  }

  cuda::Quantize quantize_args() const {
    cuda::Quantize args;
    args.spec = spec;
    args.rows = args.columns = size;
    args.source = dtype;
    args.values = values.data();
    args.codes = codes.data();
    args.scales8 = scales8.data();
    args.scales = scales.data();
    args.nested_absmax = nested.data();
    args.offset = offset.data();
    args.global_scale = global.data();
    args.workspace = workspace.data();
    return args;
  }
  cuda::Dequantize dequantize_args() const {
    cuda::Dequantize args;
    args.spec = spec;
    args.rows = args.columns = size;
    args.codes = codes.data();
    args.scales8 = scales8.data();
    args.scales = scales.data();
    args.nested_absmax = nested.data();
    args.map = map.data();
    args.offset = host_offset;
    args.global_scale = global.data();
    args.dtype = dtype;
    args.out = out.data();
    return args;
  }
  // Codes and scales once, values once, or twice where a global maximum is needed. Under double quantization the absmax
  // values too: written once, then read for their mean and again to be encoded.
  double quantize_bytes() const {
    const double once = static_cast<double>(cuda::dequantize_bytes(spec, size, size, dtype));
    return once + (spec.format == Format::nvfp4 ? static_cast<double>(values.bytes()) : 0.0) +
           (spec.double_quant ? 3.0 * static_cast<double>(scales.bytes()) : 0.0);
  }
  // The same bytes without arithmetic; a cudaError_t.
  int move_quantize_bytes(int shape) const {
    const cuda::Quantize args = quantize_args();
    const int status = launch_quantize_bytes(cuda::quantize_params(args), shape, workspace.data(), nullptr);
    return status || !spec.double_quant
               ? status
               : cuda::launch_double_quant(cuda::double_quant_params(args), false, nullptr);
  }

  // The first and last rows against the reference; rows are whole blocks here.
  bool agrees() const {
    cuda::dequantize(dequantize_args(), nullptr);
    const std::int64_t rows = 4, count = rows * size;
    QuantizedTensor part = make_quantized(spec, {rows, size}, dtype);
    const PartSizes parts = part_sizes(spec, {rows, size});
    part.offset = host_offset;
    part.global_scale = spec.format == Format::nvfp4 ? global.download()[0] : 1.0f;
    for (const bool last : {false, true}) {
      auto copy = [&](auto& target, const auto& source, std::int64_t elements) {
        if (!elements) return;
        const auto from = last ? source.data() + source.size() - elements : source.data();
        cuda::check_status(
            cudaMemcpy(target.data(), from, static_cast<std::size_t>(elements) * sizeof *source.data(),
                       cudaMemcpyDeviceToHost),
            "copying a sample");
      };
      copy(part.codes, codes, parts.codes);
      copy(part.scales8, scales8, parts.scales8);
      copy(part.scales, scales, parts.scales);
      copy(part.nested_absmax, nested, parts.nested_absmax);
      std::vector<std::uint8_t> got(static_cast<std::size_t>(count * dtype_bytes(dtype)));
      copy(got, out, static_cast<std::int64_t>(got.size()));
      std::vector<float> want(static_cast<std::size_t>(count));
      dequantize_reference({.tensor = &part, .columns = size, .first = 0, .last = count, .out = want.data()});
      for (std::int64_t i = 0; i < count; ++i)
        if (load_element(dtype, reinterpret_cast<const std::byte*>(got.data()), i) !=
            (dtype == DType::f32 ? want[static_cast<std::size_t>(i)]
                                 : round_to_dtype(dtype, want[static_cast<std::size_t>(i)])))
          return false;
    }
    return true;
  }
};

struct Row {
  std::string op, what;
  std::int64_t size;
  double us, bytes, floor_us;
};

int run(const Options& options) {
  const auto device = cuda::device_info();
  if (!device) {
    fmt::print("SKIPPED: no CUDA device; nothing was measured\n");
    return 0;
  }
  cuda::require_device("bench_ops");
  Harness harness(options);
  const double copy = harness.copy_rate();
  const std::vector<QuantSpec> specs = {{.format = Format::nf4, .double_quant = true},
                                        {.format = Format::nf4},
                                        {.format = Format::fp4},
                                        {.format = Format::nvfp4},
                                        {.format = Format::mxfp4},
                                        {.format = Format::mxfp8_e4m3},
                                        {.format = Format::mxfp8_e5m2},
                                        {.format = Format::int4},
                                        {.format = Format::int8}};
  std::vector<Row> rows;
  int failures = 0;
  for (const std::int64_t size : options.sizes)
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      if (dtype != DType::bf16 && !options.all_types) continue;
      for (const QuantSpec& spec : specs) {
        const std::string what = fmt::format("{} {}", to_string(spec), dtype_name(dtype));
        if (what.find(options.only) == std::string::npos) continue;
        const Problem problem(spec, size, dtype);
        if (!problem.agrees()) {
          fmt::print("FAILED {} at {}^2 differs from the codec\n", what, size);
          ++failures;
        }
        auto fastest = [&](auto launch) {
          double best = 1e30;
          for (int shape = 0; shape < cuda::kBytesShapes; ++shape)
            best = std::min(
                best, harness.time([&](int) { cuda::check_status(launch(shape), "moving bytes"); }).median);
          return best;
        };
        const cuda::Dequantize args = problem.dequantize_args();
        const auto params = cuda::dequantize_params(args);
        const double decode = harness.time([&](int) { cuda::dequantize(args, nullptr); }).median;
        rows.push_back(
            {"dequantize", what, size, decode,
             static_cast<double>(cuda::dequantize_bytes(spec, size, size, dtype)), fastest([&](int shape) {
               return cuda::launch_dequantize_bytes(params, dtype, spec.double_quant, shape, nullptr);
             })});
        const cuda::Quantize quantize_args = problem.quantize_args();
        const double encode = harness.time([&](int) { cuda::quantize(quantize_args, nullptr); }).median;
        rows.push_back({"quantize", what, size, encode, problem.quantize_bytes(),
                        fastest([&](int shape) { return problem.move_quantize_bytes(shape); })});
      }
    }
  json result = new_result(device->name, copy, options);
  fmt::print("{}; copy {:.0f} GB/s; medians of {}\n{:<11} {:<28} {:>6} {:>9} {:>7} {:>7} {:>8}\n",
             device->name, copy, options.repeats, "op", "format", "size", "us", "GB/s", "% copy", "% bytes");
  for (const Row& row : rows) {
    const double rate = gigabytes_per_second(row.bytes, row.us);
    fmt::print("{:<11} {:<28} {:>6} {:>9.2f} {:>7.0f} {:>7.1f} {:>8.1f}\n", row.op, row.what, row.size,
               row.us, rate, 100 * rate / copy, 100 * row.floor_us / row.us);
    result["rows"].push_back({{"op", row.op},
                              {"format", row.what},
                              {"size", row.size},
                              {"us", row.us},
                              {"bytes", row.bytes},
                              {"gbps", rate},
                              {"share_of_copy", rate / copy},
                              {"bytes_us", row.floor_us},
                              {"share_of_bytes", row.floor_us / row.us}});
  }
  write_result(result, options);
  fmt::print("{}\n", failures ? "FAILED: see above" : "samples of every op agree with the codec");
  return failures ? 1 : 0;
}

}  // namespace

}  // namespace halfbyte::bench

int main(int argc, char** argv) {
  try {
    return halfbyte::bench::run(halfbyte::bench::parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_ops: {}\n", error.what());
    return 2;
  }
}
