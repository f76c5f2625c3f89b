// Checks, times and prints; the products are those of ops/matmul_w4a16.
#include "cli/bench_matmul.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/fail.h"
#include "device/cuda/device.h"
#include "formats/formats.h"
#include "io/json.h"
#include "io/output.h"

#ifdef HALFBYTE_CUDA
#include <algorithm>
#include <functional>
#include <random>

#include "core/shape.h"
#include "device/cuda/cublas.h"
#include "device/cuda/memory.h"
#include "formats/dynamic8.h"
#include "formats/quantized_tensor.h"
#include "formats/source_dtype.h"
#include "ops/dequantize/cuda.h"
#include "ops/dequantize/op.h"
#include "ops/matmul_w4a16/cuda.h"
#include "ops/matmul_w4a16/op.h"
#include "ops/matmul_w4a16/pack.h"
#endif

namespace halfbyte::cli {

namespace {

struct WeightShape {
  std::int64_t rows = 0, columns = 0;  // N, K
  std::string name;                    // "4096x14336 down"
};

struct ModelShapes {
  std::string_view name;
  std::int64_t hidden, kv, intermediate;
};
constexpr ModelShapes kModels[] = {
    {"llama3-8b", 4096, 1024, 14336}, {"llama3-70b", 8192, 1024, 28672}, {"qwen2.5-7b", 3584, 512, 18944}};

// The linears of a model of that name, or the one shape that NxK says.
std::vector<WeightShape> shapes_of(const std::string& text) {
  for (const ModelShapes& model : kModels)
    if (model.name == text)
      return {{model.hidden, model.hidden, "q, o"},
              {model.kv, model.hidden, "k, v"},
              {model.intermediate, model.hidden, "gate, up"},
              {model.hidden, model.intermediate, "down"}};
  WeightShape shape;
  int used = 0;
  if (std::sscanf(text.c_str(), "%ldx%ld%n", &shape.rows, &shape.columns, &used) != 2 ||
      used != static_cast<int>(text.size()) || shape.rows < 1 || shape.columns < 1)
    fail_input(
        "--shapes {} is neither llama3-8b, llama3-70b or qwen2.5-7b nor rows x columns of weights, like "
        "4096x14336",
        text);
  return {shape};
}

struct Options {
  std::vector<std::string> shapes{"llama3-8b"}, formats{"nvfp4", "nf4-double"};
  std::vector<std::int64_t> rows{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
  std::string dtype = "bf16", json;
  int repeats = 50;
};

#ifdef HALFBYTE_CUDA

using cuda::Buffer;

QuantSpec spec_of(const std::string& name) {
  const bool twice = name.ends_with("-double");
  const QuantSpec spec{.format = format_from_name(twice ? name.substr(0, name.size() - 7) : name),
                       .double_quant = twice};
  validate(spec);
  return spec;
}

// Random codes and scales: what encoders give makes no difference to a product's time, zeros would.
QuantizedTensor random_weights(const QuantSpec& spec, const WeightShape& shape, DType dtype) {
  check_w4a16_weights(spec, shape.rows, shape.columns);
  std::mt19937_64 random(static_cast<std::uint64_t>(shape.rows * 31 + shape.columns));
  QuantizedTensor tensor = make_quantized(spec, {shape.rows, shape.columns}, dtype);
  for (std::int64_t i = 0; i < tensor.codes.size(); i += 8) {
    const std::uint64_t bits = random();
    std::memcpy(tensor.codes.data() + i, &bits,
                static_cast<std::size_t>(std::min<std::int64_t>(8, tensor.codes.size() - i)));
  }
  const std::uint32_t low = spec.format == Format::nvfp4 ? 0x20 : spec.format == Format::mxfp4 ? 117 : 0;
  const std::uint32_t count = spec.format == Format::nvfp4 ? 0x50 : spec.format == Format::mxfp4 ? 7 : 256;
  for (auto& scale : tensor.scales8) scale = static_cast<std::uint8_t>(low + random() % count);
  for (auto& scale : tensor.scales) scale = 0.001f + 0.0001f * static_cast<float>(random() % 200);
  for (auto& scale : tensor.nested_absmax) scale = 0.01f + 0.0001f * static_cast<float>(random() % 100);
  tensor.offset = 0.02f;
  tensor.global_scale = 0x1p-9f;
  return tensor;
}

template <typename T>
Buffer<T> upload(const Array<T>& host) {
  return Buffer<T>(std::span<const T>(host.data(), static_cast<std::size_t>(host.size())));
}

// Random 16-bit values about 1 in size, [rows, columns], whose beginning is kept on the host.
struct Activations {
  std::vector<std::uint16_t> host;
  Buffer<std::uint16_t> device;

  Activations(std::int64_t rows, std::int64_t columns, DType dtype)
      : host(static_cast<std::size_t>(rows * columns)) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const std::size_t period = std::min<std::size_t>(host.size(), 1 << 20);
    for (std::size_t i = 0; i < host.size(); ++i) {
      if (i >= period) {
        host[i] = host[i - period];
        continue;
      }
      const float value = normal(random);
      host[i] = dtype == DType::bf16 ? bf16_encode(value) : fp16_encode(value);
    }
    device = Buffer<std::uint16_t>(std::span<const std::uint16_t>(host));
  }
};

// Weights on the device, packed for products and decoded for cuBLAS.
struct Problem {
  QuantizedTensor tensor;
  DType dtype;
  Buffer<std::uint8_t> codes, scales8, tiles, workspace;
  Buffer<float> scales, nested, map, global;
  Buffer<std::uint16_t> dense;
  cuda::MatmulW4A16Call call;

  Problem(const QuantSpec& spec, const WeightShape& shape, DType type, std::int64_t most_rows, bool decode)
      : tensor(random_weights(spec, shape, type)),
        dtype(type),
        codes(upload(tensor.codes)),
        scales8(upload(tensor.scales8)),
        tiles(w4_tile_bytes(spec, shape.rows, shape.columns)),
        workspace(cuda::matmul_w4a16_workspace(most_rows, shape.rows, shape.columns)),
        scales(upload(tensor.scales)),
        nested(upload(tensor.nested_absmax)),
        map(std::span<const float>(kDynamic8Map)),
        global(std::span<const float>(&tensor.global_scale, 1)) {
    cuda::pack_w4(spec, shape.rows, shape.columns, codes.data(), scales8.data(), scales.data(), tiles.data(),
                  nullptr);
    workspace.fill(0);
    call.weights.spec = spec;
    call.weights.rows = shape.rows;
    call.weights.columns = shape.columns;
    call.weights.tiles = tiles.data();
    call.weights.global_scale = global.data();
    call.weights.nested_absmax = nested.data();
    call.weights.map = map.data();
    call.weights.offset = tensor.offset;
    call.dtype = type;
    call.workspace = workspace.data();
    if (!decode) return;
    dense = Buffer<std::uint16_t>(shape.rows * shape.columns);
    cuda::dequantize({.spec = spec,
                      .rows = shape.rows,
                      .columns = shape.columns,
                      .codes = codes.data(),
                      .scales8 = scales8.data(),
                      .scales = scales.data(),
                      .nested_absmax = nested.data(),
                      .map = map.data(),
                      .offset = tensor.offset,
                      .group = kDynamic8Group,
                      .global_scale = global.data(),
                      .dtype = type,
                      .out = dense.data()},
                     nullptr);
  }

  std::int64_t weight_bytes() const { return quantized_bytes(tensor.spec, tensor.shape); }

  // Results spread over out[m, rows] against float64 sums of the decoded weights. A result may be off by its own rounding,
  // that of the weights to 16 bits, and what float32 sums lose.
  void check(std::int64_t m, const Activations& activations, const Buffer<std::uint16_t>& out) const {
    const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const double step = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
    std::vector<float> weights(static_cast<std::size_t>(columns));
    for (std::int64_t i = 0; i < 32; ++i) {
      const std::int64_t n = i == 31 ? rows - 1 : i * rows / 32;
      dequantize_reference({.tensor = &tensor,
                            .columns = columns,
                            .first = n * columns,
                            .last = (n + 1) * columns,
                            .out = weights.data()});
      for (const std::int64_t row : {std::int64_t{0}, m / 2, m - 1}) {
        double sum = 0, magnitude = 0;
        for (std::int64_t k = 0; k < columns; ++k) {
          const std::uint16_t code = activations.host[static_cast<std::size_t>(row * columns + k)];
          const double product =
              static_cast<double>(dtype == DType::bf16 ? bf16_decode(code) : fp16_decode(code)) *
              static_cast<double>(weights[static_cast<std::size_t>(k)]);
          sum += product;
          magnitude += std::abs(product);
        }
        std::uint16_t code = 0;
        cuda::check_status(cudaMemcpy(&code, out.data() + row * rows + n, 2, cudaMemcpyDeviceToHost),
                           "copying a result");
        const double got = static_cast<double>(dtype == DType::bf16 ? bf16_decode(code) : fp16_decode(code));
        if (!(std::abs(got - sum) <= step * std::abs(sum) + (step + 0x1p-17) * magnitude))
          fail(ErrorKind::device,
               "{} weights of {} x {}, {} activations: result [{}, {}] is {}, expected {}: nothing is timed; "
               "please report it",
               to_string(tensor.spec), rows, columns, m, row, n, got, sum);
      }
    }
  }
};

// Microseconds of each call: alternating, each after 256 MB were written through the L2; medians.
std::vector<double> medians(const std::vector<std::function<void()>>& calls, int repeats,
                            Buffer<std::uint8_t>& flush) {
  std::vector<std::vector<double>> times(calls.size());
  std::vector<cuda::Timer> timers(calls.size());
  for (const auto& call : calls)
    for (int i = 0; i < 3; ++i) call();
  for (int i = 0; i < repeats; ++i) {
    for (std::size_t c = 0; c < calls.size(); ++c) {
      flush.fill(i & 255);
      timers[c].start();
      calls[c]();
      timers[c].stop();
    }
    for (std::size_t c = 0; c < calls.size(); ++c)
      times[c].push_back(1e3 * static_cast<double>(timers[c].milliseconds()));
  }
  std::vector<double> result;
  for (auto& of_call : times) {
    std::sort(of_call.begin(), of_call.end());
    result.push_back(of_call[of_call.size() / 2]);
  }
  return result;
}

void run(const Options& options) {
  std::vector<WeightShape> shapes;
  for (const std::string& text : options.shapes)
    for (const WeightShape& shape : shapes_of(text)) shapes.push_back(shape);
  for (const std::int64_t m : options.rows)
    if (m < 1) fail_input("--m {}, expected at least 1", m);
  for (const std::string& format : options.formats)
    for (const WeightShape& shape : shapes) check_w4a16_weights(spec_of(format), shape.rows, shape.columns);
  cuda::require_device("bench matmul");
  const DType dtype = options.dtype == "bf16" ? DType::bf16 : DType::f16;
  const std::int64_t most = *std::max_element(options.rows.begin(), options.rows.end());
  std::optional<cuda::Cublas> cublas;
  if (cuda::Cublas::found()) cublas.emplace(cuda::CublasSums::any);
  Buffer<std::uint8_t> flush(std::int64_t{256} << 20);
  const std::string device = cuda::device_info()->name;
  fmt::print(
      "{}; {}; medians of {}\n", device,
      cublas
          ? fmt::format("cuBLAS {}", cublas->version())
          : "no cuBLAS found: put the folder of libcublas.so.13 or .12 on LD_LIBRARY_PATH to compare with it",
      options.repeats);
  fmt::print("{:>12} {:<9} {:>5} {:<11} {:>9} {:>9} {:>8} {:>7} {:>8}\n", "N x K", "", "M", "format", "us",
             "cuBLAS us", "x cuBLAS", "GB/s", "TFLOP/s");
  Json result = {
      {"device", device}, {"repeats", options.repeats}, {"dtype", options.dtype}, {"rows", Json::array()}};
  if (cublas) result["cublas"] = cublas->version();
  for (const WeightShape& shape : shapes) {
    const Activations activations(most, shape.columns, dtype);
    Buffer<std::uint16_t> out(most * shape.rows), theirs(cublas ? most * shape.rows : 0);
    for (const std::string& format : options.formats) {
      Problem problem(spec_of(format), shape, dtype, most, cublas.has_value());
      for (const std::int64_t m : options.rows) {
        out.fill(0xFF);  // a NaN where nothing is written
        problem.call.m = m;
        problem.call.activations = activations.device.data();
        problem.call.out = out.data();
        const auto ours = [&] { cuda::matmul_w4a16(problem.call, nullptr); };
        ours();
        problem.check(m, activations, out);
        std::vector<std::function<void()>> calls{ours};
        if (cublas)
          calls.push_back([&] {
            cublas->matmul({.m = m,
                            .rows = shape.rows,
                            .columns = shape.columns,
                            .dtype = dtype,
                            .activations = activations.device.data(),
                            .weights = problem.dense.data(),
                            .out_dtype = dtype,
                            .out = theirs.data()},
                           nullptr);
          });
        const std::vector<double> us = medians(calls, options.repeats, flush);
        const double products = static_cast<double>(m) * static_cast<double>(shape.rows * shape.columns);
        // Weights, activations and results once.
        const double bytes =
            static_cast<double>(problem.weight_bytes() + 2 * m * (shape.rows + shape.columns));
        const double gbps = bytes / us[0] * 1e-3, tflops = 2 * products / us[0] * 1e-6;
        fmt::print("{:>12} {:<9} {:>5} {:<11} {:>9.2f} {:>9} {:>8} {:>7.0f} {:>8.1f}\n",
                   fmt::format("{}x{}", shape.rows, shape.columns), shape.name, m, format, us[0],
                   cublas ? fmt::format("{:.2f}", us[1]) : "-",
                   cublas ? fmt::format("{:.2f}", us[1] / us[0]) : "-", gbps, tflops);
        std::fflush(stdout);
        Json row = {{"n", shape.rows}, {"k", shape.columns}, {"m", m},          {"format", format},
                    {"us", us[0]},     {"gbps", gbps},       {"tflops", tflops}};
        if (cublas) row["cublas_us"] = us[1], row["times_cublas"] = us[1] / us[0];
        result["rows"].push_back(row);
      }
    }
  }
  if (!options.json.empty()) write_text_file(options.json, dump_json(result));
}

#else

void run(const Options& options) {
  for (const std::string& text : options.shapes) shapes_of(text);
  cuda::require_device("bench matmul");
}

#endif

}  // namespace

void add_bench_matmul(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* matmul = bench.add_subcommand(
      "matmul",
      "Products with 4-bit weights on CUDA, checked and timed against cuBLAS with the decoded weights");
  matmul
      ->add_option("--shapes", options->shapes,
                   "llama3-8b, llama3-70b, qwen2.5-7b, or rows x columns of weights, like 4096x14336")
      ->delimiter(',')
      ->capture_default_str();
  matmul->add_option("--m", options->rows, "Rows of activations")->delimiter(',')->capture_default_str();
  matmul->add_option("--format", options->formats, "nvfp4, mxfp4, int4, nf4, nf4-double, fp4, fp4-double")
      ->delimiter(',')
      ->capture_default_str();
  matmul->add_option("--dtype", options->dtype, "Type of activations and results")
      ->check(CLI::IsMember({"bf16", "fp16"}))
      ->capture_default_str();
  matmul->add_option("--repeats", options->repeats, "Runs of which the median is shown")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  matmul->add_option("--json", options->json, "Writes the table to this file");
  matmul->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
