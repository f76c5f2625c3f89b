// CUDA products with 4-bit weights against the float64 product of the decoded values: formats x random ragged shapes x both
// types of activations, guarded outputs, packing against the host's, the same bits every time, refusals.
//   gpu_matmul_test [--reduced] [--shapes N] [--seed N]     --reduced: few cases, for compute-sanitizer
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "bench/gpu/harness.h"
#include "core/fail.h"
#include "core/thread_pool.h"
#include "formats/bf16.h"
#include "formats/dynamic8.h"
#include "formats/fp16.h"
#include "formats/source_dtype.h"
#include "ops/matmul_w4a16/cuda.h"
#include "ops/matmul_w4a16/op.h"
#include "ops/matmul_w4a16/pack.h"
#include "tests/gpu/program.h"

namespace halfbyte::test {

namespace {

using cuda::Buffer;

std::vector<QuantSpec> all_specs() {
  std::vector<QuantSpec> specs;
  for (const auto rule : {GlobalScaleRule::pow2, GlobalScaleRule::amax, GlobalScaleRule::compressed_tensors})
    specs.push_back({.format = Format::nvfp4, .global_scale = rule});
  specs.push_back({.format = Format::mxfp4});
  for (const std::int64_t block : {32, 64, 128})
    specs.push_back({.format = Format::int4, .block_size = block});
  for (const bool twice : {true, false})
    for (const std::int64_t block : {32, 64, 256})
      specs.push_back({.format = Format::nf4, .block_size = block, .double_quant = twice});
  specs.push_back({.format = Format::fp4, .double_quant = true});
  return specs;
}

struct Case {
  QuantSpec spec;
  std::int64_t m = 0, rows = 0, columns = 0;
  DType dtype = DType::bf16;
  bool with_bias = false;
  std::uint64_t seed = 0;
  QuantizedTensor weights;
  std::vector<std::uint16_t> activations, bias;
  std::vector<double> expected, magnitude;

  std::string name() const {
    return fmt::format("{} {}x{}, {} rows of {}{}, seed {}", to_string(spec), rows, columns, m,
                       dtype_name(dtype), with_bias ? " and a bias" : "", seed);
  }
};

// Random codes, scales and activations: every code meets many scales.
void fill(Case& c) {
  std::mt19937_64 random(c.seed);
  std::normal_distribution<float> normal;
  c.weights = make_quantized(c.spec, {c.rows, c.columns}, c.dtype);
  for (auto& code : c.weights.codes) code = static_cast<std::uint8_t>(random());
  for (auto& scale : c.weights.scales8)
    scale = static_cast<std::uint8_t>(c.spec.format == Format::nvfp4   ? random() % 0x7F
                                      : c.spec.format == Format::mxfp4 ? 117 + random() % 8
                                                                       : random());
  for (auto& scale : c.weights.scales) scale = 0.001f + 0.0001f * static_cast<float>(random() % 300);
  for (auto& scale : c.weights.nested_absmax) scale = 0.01f + 0.0001f * static_cast<float>(random() % 100);
  c.weights.offset = 0.0213f;
  c.weights.global_scale = c.spec.global_scale == GlobalScaleRule::pow2   ? pow2f(-11)
                           : c.spec.global_scale == GlobalScaleRule::amax ? 0.00037f
                                                                          : 1731.0f;
  auto make = [&](std::int64_t count) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
    for (auto& value : values) {
      const float x = normal(random);
      value = c.dtype == DType::bf16 ? bf16_encode(x) : fp16_encode(x);
    }
    return values;
  };
  c.activations = make(c.m * c.columns);
  if (c.with_bias) c.bias = make(c.rows);
  c.expected.resize(static_cast<std::size_t>(c.m * c.rows));
  c.magnitude.resize(c.expected.size());
  matmul_w4a16_reference(
      {.weights = &c.weights,
       .activations = {.dtype = c.dtype,
                       .shape = {c.m, c.columns},
                       .data = std::as_bytes(std::span<const std::uint16_t>(c.activations))},
       .bias = {.dtype = c.dtype,
                .shape = {static_cast<std::int64_t>(c.bias.size())},
                .data = std::as_bytes(std::span<const std::uint16_t>(c.bias))}},
      c.expected, c.magnitude);
}

template <typename T>
Buffer<T> upload(const Array<T>& host) {
  return Buffer<T>(std::span<const T>(host.data(), static_cast<std::size_t>(host.size())));
}

// Weights on the device, packed there, and a call that multiplies them.
struct OnDevice {
  Buffer<std::uint8_t> codes, scales8, tiles, workspace;
  Buffer<float> scales, nested, map, global;
  Buffer<std::uint16_t> activations, bias, out;
  cuda::MatmulW4A16Call call;

  explicit OnDevice(const Case& c)
      : codes(upload(c.weights.codes)),
        scales8(upload(c.weights.scales8)),
        tiles(w4_tile_bytes(c.spec, c.rows, c.columns)),
        workspace(cuda::matmul_w4a16_workspace(c.m, c.rows, c.columns)),
        scales(upload(c.weights.scales)),
        nested(upload(c.weights.nested_absmax)),
        map(std::span<const float>(kDynamic8Map)),
        global(std::span<const float>(&c.weights.global_scale, 1)),
        activations(std::span<const std::uint16_t>(c.activations)),
        bias(std::span<const std::uint16_t>(c.bias)),
        out(c.m * c.rows + 32) {
    tiles.fill(0xA5);
    out.fill(0xA5);
    workspace.fill(0);
    cuda::pack_w4(c.spec, c.rows, c.columns, codes.data(), scales8.data(), scales.data(), tiles.data(),
                  nullptr);
    call = {.weights = {.spec = c.spec,
                        .rows = c.rows,
                        .columns = c.columns,
                        .tiles = tiles.data(),
                        .global_scale = global.data(),
                        .nested_absmax = nested.data(),
                        .map = map.data(),
                        .offset = c.weights.offset},
            .m = c.m,
            .dtype = c.dtype,
            .activations = activations.data(),
            .bias = c.with_bias ? bias.data() : nullptr,
            .out = out.data(),
            .workspace = workspace.data()};
  }
};

// The rounding of the result, that of the weights to the same type (of nf4 and fp4 levels where activations are few), and what
// float32 sums of a few thousand terms lose: a bound, not a measurement.
double tolerance(const Case& c, std::size_t i) {
  const double step = c.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;  // rounding to nearest, relative
  const bool rounded = c.spec.format == Format::nf4 || c.spec.format == Format::fp4 ||
                       (c.m > 16 && c.spec.format != Format::nvfp4);
  return step * std::abs(c.expected[i]) + ((rounded ? step : 0.0) + 0x1p-17) * c.magnitude[i] + 0x1p-24;
}

std::string check(const Case& c) {
  const OnDevice device(c);
  cuda::matmul_w4a16(device.call, nullptr);
  std::vector<std::uint8_t> tiles(static_cast<std::size_t>(device.tiles.size()));
  pack_w4(c.weights, tiles);
  if (device.tiles.download() != tiles) return "packed otherwise than on the host";
  const auto got = device.out.download();
  for (std::size_t i = c.expected.size(); i < got.size(); ++i)
    if (got[i] != 0xA5A5) return "wrote past the end";
  for (std::size_t i = 0; i < c.expected.size(); ++i) {
    const double value =
        static_cast<double>(c.dtype == DType::bf16 ? bf16_decode(got[i]) : fp16_decode(got[i]));
    if (!(std::abs(value - c.expected[i]) <= tolerance(c, i)))
      return fmt::format("result {} is {}, expected {} within {}", i, value, c.expected[i], tolerance(c, i));
  }
  return "";
}

// The same bits in 100 calls.
std::string check_repeats(const QuantSpec& spec, DType dtype, std::int64_t m) {
  Case c{.spec = spec, .m = m, .rows = 520, .columns = 4096 + 512, .dtype = dtype, .seed = 77};
  fill(c);
  OnDevice device(c);
  Buffer<std::uint16_t> first(device.out.size());
  first.fill(0xA5);
  device.call.out = first.data();
  cuda::matmul_w4a16(device.call, nullptr);
  for (int i = 0; i < 100; ++i) {
    device.out.fill(0xA5);
    device.call.out = device.out.data();
    cuda::matmul_w4a16(device.call, nullptr);
    if (bench::count_differences(first.data(), device.out.data(), static_cast<std::int64_t>(first.bytes())))
      return fmt::format("call {} gave other bits", i + 2);
  }
  return "";
}

bool refused(const std::function<void()>& call, std::string_view part) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::bad_input &&
           std::string_view(error.what()).find(part) != std::string_view::npos;
  }
  return false;
}

}  // namespace

int run(int argc, char** argv) {
  const ShapeOptions options =
      parse_shape_options("gpu_matmul_test", argc, argv, {.shapes = 200, .seed = 20261130}, 3);
  const auto [reduced, shapes, seed] = options;
  if (!device_is_there(seed)) return 0;
  ThreadPool pool(available_cores());
  std::mt19937_64 random(seed);
  Tally tally;
  const auto add = [&](const std::string& problem, const std::string& what) { tally.add(problem, what); };
  for (const QuantSpec& spec : all_specs()) {
    const std::int64_t block = effective_block(spec, 0), before = tally.failed;
    std::vector<Case> cases(static_cast<std::size_t>(shapes));
    for (Case& c : cases) {
      c.spec = spec;
      c.rows = 1 + static_cast<std::int64_t>(random() % (random() % 4 ? 150u : 700u));
      c.columns =
          block * (1 + static_cast<std::int64_t>(
                           random() % static_cast<std::uint64_t>((random() % 4 ? 800 : 5000) / block + 1)));
      c.m = 1 + static_cast<std::int64_t>(random() % (reduced        ? 34u
                                                      : random() % 2 ? 16u
                                                      : random() % 4 ? 80u
                                                                     : 400u));
      c.dtype = random() % 2 ? DType::bf16 : DType::f16;
      c.with_bias = random() % 3 == 0;
      c.seed = random();
    }
    pool.parallel_for(shapes, [&](std::int64_t i) { fill(cases[static_cast<std::size_t>(i)]); });
    for (const Case& c : cases) add(check(c), c.name());
    if (!reduced)
      for (const DType dtype : {DType::bf16, DType::f16})
        for (const std::int64_t m : {13, 150})
          add(check_repeats(spec, dtype, m),
              fmt::format("{} {} rows of {} repeated", to_string(spec), m, dtype_name(dtype)));
    fmt::print("{:<40} {:>6} cases, {} failed\n", to_string(spec), shapes + (reduced ? 0 : 4),
               tally.failed - before);
  }
  Case c{.spec = {.format = Format::nvfp4}, .m = 3, .rows = 20, .columns = 64, .seed = 1};
  fill(c);
  const OnDevice good(c);
  auto with = [&](auto change) {
    cuda::MatmulW4A16Call call = good.call;
    change(call);
    return [call] { cuda::matmul_w4a16(call, nullptr); };
  };
  add(refused(with([](auto& call) { call.dtype = DType::f32; }), "F32") ? "" : "no", "float32 is refused");
  add(refused(with([](auto& call) { call.weights.columns = 24; }), "block of 16") ? "" : "no",
      "24 columns are refused");
  add(refused(with([](auto& call) { call.weights.tiles += 4; }), "tiles lies 4 bytes") ? "" : "no",
      "misaligned tiles are refused");
  add(refused(with([](auto& call) { call.weights.spec.format = Format::int8; }), "4 bits") ? "" : "no",
      "int8 is refused");
  return exit_code(tally.passed, tally.failed);
}

}  // namespace halfbyte::test

int main(int argc, char** argv) {
  return halfbyte::test::program("gpu_matmul_test", argc, argv, halfbyte::test::run);
}
