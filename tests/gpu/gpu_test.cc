// The CUDA ops against the codecs: formats x rules x ragged shapes x types, guarded outputs, refused pointers, and tensors
// of more than 2^31 elements. One program without network or test library; says SKIPPED where there is no device.
//   gpu_test [--reduced] [--large] [--seed N]     --reduced: few cases, for compute-sanitizer; --large: 2^31 + 64 too
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "bench/gpu/harness.h"
#include "core/thread_pool.h"
#include "formats/bnb_block.h"
#include "formats/nf4.h"
#include "formats/packing.h"
#include "ops/dequantize/cuda.h"
#include "ops/dequantize/op.h"
#include "ops/quantize/cuda.h"
#include "ops/quantize/double_quant.h"
#include "ops/quantize/op.h"
#include "tests/gpu/program.h"

namespace halfbyte::test {

namespace {

using cuda::Buffer;

struct Report {
  std::int64_t cases = 0, failed = 0;
  void add(bool good, const std::string& what) {
    ++cases;
    if (good) return;
    if (++failed <= 40) fmt::print("FAILED {}\n", what);
  }
};

// ---- inputs -------------------------------------------------------------------------------------------------------------

enum class Values { normal, ties, wide, zeros };
constexpr std::string_view kValueNames[] = {"normal", "ties", "wide", "zeros"};

// Numbers of that kind, rounded to dtype, as its bytes.
std::vector<std::byte> make_values(Values kind, DType dtype, std::int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * dtype_bytes(dtype)));
  for (std::int64_t i = 0; i < count; ++i) {
    float x = 0.0f;
    switch (kind) {
      case Values::normal:
        x = normal(random);
        if (random() % 500 == 0) x *= 100.0f;
        break;
      case Values::ties:
        x = static_cast<float>(static_cast<int>(random() % 49) - 24) * 0.25f *
            pow2f(static_cast<int>(i / 512 % 7) - 3);
        break;
      case Values::wide: {  // any exponent, subnormal numbers included
        const int range = dtype == DType::f16 ? 20 : 230;
        x = normal(random) * 20.0f *
            std::ldexp(1.0f, static_cast<int>(random() % static_cast<unsigned>(range)) -
                                 (dtype == DType::f16 ? 14 : 140));
        if (i / 64 % 3 == 0)
          x = normal(random) *
              std::ldexp(1.0f, static_cast<int>(i / 64 % 40) - (dtype == DType::f16 ? 24 : 130));
        break;
      }
      case Values::zeros:
        x = random() % 2 ? 0.0f : -0.0f;
        break;
    }
    const std::size_t at = static_cast<std::size_t>(i * dtype_bytes(dtype));
    if (dtype == DType::f32) {
      if (!is_finite(x)) x = 1.0f;
      std::memcpy(&bytes[at], &x, 4);
    } else {
      const std::uint16_t code = dtype == DType::bf16 ? bf16_encode_saturating(x) : fp16_encode_saturating(x);
      std::memcpy(&bytes[at], &code, 2);
    }
  }
  return bytes;
}

std::vector<QuantSpec> all_specs(bool reduced) {
  std::vector<QuantSpec> specs;
  for (const Format format : {Format::nf4, Format::fp4})
    for (std::int64_t block = 32; block <= 4096; block *= reduced ? 8 : 2)
      for (const bool twice : {false, true})
        specs.push_back({.format = format, .block_size = block, .double_quant = twice});
  for (const auto rule : {GlobalScaleRule::pow2, GlobalScaleRule::amax, GlobalScaleRule::compressed_tensors,
                          GlobalScaleRule::modelopt}) {
    specs.push_back({.format = Format::nvfp4, .global_scale = rule});
    if (rule == GlobalScaleRule::pow2 || rule == GlobalScaleRule::amax) {
      specs.push_back({.format = Format::nvfp4, .global_scale = rule, .four_six = true});
      specs.push_back({.format = Format::nvfp4, .global_scale = rule, .scale_search = true});
    }
  }
  for (const auto rule : {MxScaleRule::floor, MxScaleRule::ceil, MxScaleRule::rceil, MxScaleRule::even,
                          MxScaleRule::compressed_tensors, MxScaleRule::modelopt})
    for (const Format format : {Format::mxfp4, Format::mxfp8_e4m3, Format::mxfp8_e5m2})
      if (rule != MxScaleRule::modelopt || format == Format::mxfp4)
        specs.push_back({.format = format, .mx_scale = rule});
  for (const std::int64_t block : {32, 64, 128})
    specs.push_back({.format = Format::int4, .block_size = block});
  specs.push_back({.format = Format::int8});
  return specs;
}

// ---- device side of a quantized tensor ----------------------------------------------------------------------------------

template <typename T>
Buffer<T> upload(const Array<T>& host) {
  return Buffer<T>(std::span<const T>(host.data(), static_cast<std::size_t>(host.size())));
}

// A device buffer with a fence of 64 bytes after it that must stay as it was; it begins `past` bytes past an aligned address.
struct Guarded {
  Buffer<std::uint8_t> buffer;
  std::int64_t bytes, past;
  explicit Guarded(std::int64_t size, std::int64_t past_aligned = 0)
      : buffer(past_aligned + size + 64), bytes(size), past(past_aligned) {
    buffer.fill(0xA5);
  }
  std::uint8_t* data() const { return buffer.data() + past; }
  std::vector<std::uint8_t> take(bool& intact) const {
    auto host = buffer.download();
    for (std::int64_t i = past + bytes; i < past + bytes + 64; ++i)
      intact = intact && host[static_cast<std::size_t>(i)] == 0xA5;
    return {host.begin() + past, host.begin() + past + bytes};
  }
};

struct OnDevice {
  Buffer<std::uint8_t> codes, scales8;
  Buffer<float> scales, nested, map, global;
  cuda::Dequantize args;
  explicit OnDevice(const QuantizedTensor& tensor)
      : codes(upload(tensor.codes)),
        scales8(upload(tensor.scales8)),
        scales(upload(tensor.scales)),
        nested(upload(tensor.nested_absmax)),
        map(std::span<const float>(kDynamic8Map)),
        global(std::span<const float>(&tensor.global_scale, 1)) {
    const Extent extent = extent_of(tensor.shape);
    args.spec = tensor.spec;
    args.rows = extent.rows;
    args.columns = extent.columns;
    args.codes = codes.data();
    args.scales8 = scales8.data();
    args.scales = scales.data();
    args.nested_absmax = nested.data();
    args.map = map.data();
    args.offset = tensor.offset;
    args.global_scale = global.data();
  }
};

// Bits equal, or both NaN.
bool same_float(DType dtype, const std::uint8_t* a, const float expected) {
  if (dtype == DType::f32) {
    float x;
    std::memcpy(&x, a, 4);
    return float_bits(x) == float_bits(expected) || (is_nan(x) && is_nan(expected));
  }
  std::uint16_t code;
  std::memcpy(&code, a, 2);
  const std::uint16_t want = dtype == DType::bf16 ? bf16_encode(expected) : fp16_encode(expected);
  const float x = dtype == DType::bf16 ? bf16_decode(code) : fp16_decode(code);
  return code == want || (is_nan(x) && is_nan(expected));
}

void check_dequantize(const QuantizedTensor& tensor, DType dtype, const std::string& what, Report& report) {
  const Extent extent = extent_of(tensor.shape);
  const std::int64_t elements = extent.elements();
  OnDevice device(tensor);
  Guarded out(elements * dtype_bytes(dtype));
  device.args.dtype = dtype;
  device.args.out = out.buffer.data();
  cuda::dequantize(device.args, nullptr);
  bool good = true;
  const auto bytes = out.take(good);
  std::vector<float> expected(static_cast<std::size_t>(elements));
  dequantize_reference(
      {.tensor = &tensor, .columns = extent.columns, .first = 0, .last = elements, .out = expected.data()});
  std::int64_t wrong = 0, first = -1;
  for (std::int64_t i = 0; i < elements; ++i)
    if (!same_float(dtype, bytes.data() + i * dtype_bytes(dtype), expected[static_cast<std::size_t>(i)]) &&
        wrong++ == 0)
      first = i;
  report.add(good && wrong == 0,
             fmt::format("dequantize to {} {}: {} of {} wrong, first {}{}", dtype_name(dtype), what, wrong,
                         elements, first, good ? "" : "; wrote past the end"));
}

bool equal(std::span<const std::uint8_t> a, const void* b) { return std::memcmp(a.data(), b, a.size()) == 0; }

void check_quantize(const std::vector<std::byte>& values, const QuantizedTensor& expected,
                    std::span<const float> absmax, const std::string& what, Report& report) {
  const Extent extent = extent_of(expected.shape);
  Buffer<std::uint8_t> in(
      std::span<const std::uint8_t>(reinterpret_cast<const std::uint8_t*>(values.data()), values.size()));
  // Double quantization moves more at once where its arrays are aligned; odd numbers of rows leave them as the API allows.
  const std::int64_t odd = expected.spec.double_quant ? extent.rows % 2 : 0;
  Guarded codes(expected.codes.size()), scales8(expected.scales8.size(), odd),
      nested(4 * expected.nested_absmax.size(), 4 * odd);
  const std::int64_t scale_count =
      expected.spec.double_quant ? static_cast<std::int64_t>(absmax.size()) : expected.scales.size();
  Guarded scales(4 * scale_count, 4 * odd);
  Buffer<float> global(1), offset(1);
  Buffer<std::uint32_t> workspace(cuda::quantize_workspace(expected.spec));
  Buffer<int> not_finite(1);
  not_finite.fill(0);
  cuda::Quantize args;
  args.spec = expected.spec;
  args.rows = extent.rows;
  args.columns = extent.columns;
  args.source = expected.source;
  args.values = in.data();
  args.codes = codes.data();
  args.scales8 = scales8.data();
  args.scales = reinterpret_cast<float*>(scales.data());
  args.nested_absmax = reinterpret_cast<float*>(nested.data());
  args.offset = offset.data();
  args.global_scale = global.data();
  args.workspace = workspace.data();
  args.not_finite = not_finite.data();
  cuda::quantize(args, nullptr);
  bool good = not_finite.download()[0] == 0;
  const auto got_codes = codes.take(good), got_scales8 = scales8.take(good), got_scales = scales.take(good),
             got_nested = nested.take(good);
  const bool same_codes = equal(got_codes, expected.codes.data());
  const bool same_scales =
      equal(got_scales8, expected.scales8.data()) &&
      equal(got_scales, expected.spec.double_quant ? absmax.data() : expected.scales.data());
  const bool same_nested =
      equal(got_nested, expected.nested_absmax.data()) &&
      (!expected.spec.double_quant || float_bits(offset.download()[0]) == float_bits(expected.offset));
  const bool same_global = expected.spec.format != Format::nvfp4 ||
                           float_bits(global.download()[0]) == float_bits(expected.global_scale);
  std::int64_t first = -1, wrong = 0;
  for (std::size_t i = 0; i < got_codes.size(); ++i)
    if (got_codes[i] != expected.codes[static_cast<std::int64_t>(i)] && wrong++ == 0)
      first = static_cast<std::int64_t>(i);
  report.add(
      good && same_codes && same_scales && same_nested && same_global,
      fmt::format(
          "quantize {}: codes {} (of {} bytes {} wrong, first {}), scales {}, nested {}, global {}, rest {}",
          what, same_codes, got_codes.size(), wrong, first, same_scales, same_nested, same_global, good));
}

void check_case(const QuantSpec& spec, const Shape& shape, DType source, Values kind, std::uint64_t seed,
                Report& report) {
  std::mt19937_64 random(seed);
  const Extent extent = extent_of(shape);
  const auto values = make_values(kind, source, extent.elements(), random);
  const TensorView view{.dtype = source, .shape = shape, .data = values};
  QuantizedTensor tensor = make_quantized(spec, shape, source);
  if (spec.format == Format::nvfp4) {
    float amax = 0.0f;
    for (std::int64_t i = 0; i < extent.elements(); ++i)
      amax = std::max(amax, abs_value(load_element(source, values.data(), i)));
    tensor.global_scale = nvfp4_global_scale(spec.global_scale, amax, source);
  }
  if (spec.double_quant) tensor.scales = Array<float>(part_sizes(spec, shape).blocks);
  if (!quantize_reference({.values = view, .extent = extent, .out = &tensor}))
    throw std::runtime_error("the test made a value that is not finite");
  std::vector<float> absmax;
  if (spec.double_quant) {
    absmax.assign(tensor.scales.begin(), tensor.scales.end());
    double_quantize(tensor.scales.span(), tensor);
    tensor.scales = Array<float>();
  }
  const std::string what = fmt::format("{} {} {} {} seed {}", to_string(spec), to_string(shape),
                                       dtype_name(source), kValueNames[static_cast<int>(kind)], seed);
  check_quantize(values, tensor, absmax, what, report);
  for (const DType out : {DType::bf16, DType::f16, DType::f32}) check_dequantize(tensor, out, what, report);
}

// Random bytes as codes and scales: every code meets every scale, NaN among them.
void check_random_codes(const QuantSpec& spec, const Shape& shape, std::uint64_t seed, Report& report) {
  std::mt19937_64 random(seed);
  QuantizedTensor tensor = make_quantized(spec, shape, DType::f32);
  for (auto& code : tensor.codes) code = static_cast<std::uint8_t>(random());
  for (auto& code : tensor.scales8) code = static_cast<std::uint8_t>(random());
  for (auto& scale : tensor.scales) scale = bits_float(static_cast<std::uint32_t>(random()));
  for (auto& scale : tensor.nested_absmax) scale = static_cast<float>(random() % 1000) * 0.001f;
  tensor.offset = 0.03f;
  tensor.global_scale = 0.0123f;
  for (const DType out : {DType::bf16, DType::f16, DType::f32})
    check_dequantize(tensor, out,
                     fmt::format("{} {} random codes seed {}", to_string(spec), to_string(shape), seed),
                     report);
}

// ---- refusals, NaN -----------------------------------------------------------------------------------------------------

bool refused(const std::function<void()>& call, std::string_view part) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::bad_input &&
           std::string_view(error.what()).find(part) != std::string_view::npos;
  }
  return false;
}

void check_refusals(Report& report) {
  QuantizedTensor tensor = make_quantized({.format = Format::nf4}, {4, 64}, DType::f32);
  std::fill(tensor.codes.begin(), tensor.codes.end(), std::uint8_t{0x77});
  std::fill(tensor.scales.begin(), tensor.scales.end(), 1.0f);
  OnDevice device(tensor);
  Buffer<std::uint8_t> out(1024);
  auto with = [&](auto change) {
    cuda::Dequantize args = device.args;
    args.out = out.data();
    change(args);
    return [args] { cuda::dequantize(args, nullptr); };
  };
  report.add(refused(with([](auto& a) { a.codes += 4; }), "codes lies 4 bytes past"),
             "misaligned codes are refused");
  report.add(refused(with([](auto& a) { a.out = static_cast<char*>(a.out) + 2; }), "out lies 2 bytes past"),
             "misaligned out is refused");
  report.add(refused(with([](auto& a) { a.scales = nullptr; }), "scales is null"),
             "missing scales are refused");
  report.add(refused(with([](auto& a) { a.spec.block_size = 48; }), "48"), "block size 48 is refused");
  report.add(refused(with([](auto& a) {
                       a.spec.double_quant = true, a.scales8 = a.codes, a.nested_absmax = a.scales,
                       a.group = 100;
                     }),
                     "power of two"),
             "groups of 100 are refused");
  report.add(refused(with([](auto& a) { a.dtype = DType::i32; }), "I32"), "int32 output is refused");
  with([](auto& a) { a.rows = 0; })();  // nothing to do
  Buffer<std::uint16_t> values(256);
  std::vector<std::uint16_t> host(256, 0x3F80);
  for (const std::uint16_t special : {std::uint16_t{0x7F80}, std::uint16_t{0xFFC0}, std::uint16_t{0x3F80}}) {
    host[77] = special;
    values = Buffer<std::uint16_t>(std::span<const std::uint16_t>(host));
    for (const Format format : {Format::nf4, Format::nvfp4, Format::mxfp8_e4m3, Format::int8}) {
      Buffer<float> scales(64), global(1);
      Buffer<std::uint8_t> codes(1024), scales8(64);
      Buffer<std::uint32_t> workspace(1);
      Buffer<int> flag(1);
      flag.fill(0);
      cuda::quantize({.spec = {.format = format},
                      .rows = 4,
                      .columns = 64,
                      .source = DType::bf16,
                      .values = values.data(),
                      .codes = codes.data(),
                      .scales8 = scales8.data(),
                      .scales = scales.data(),
                      .global_scale = global.data(),
                      .keep_global_scale = false,
                      .workspace = workspace.data(),
                      .not_finite = flag.data()},
                     nullptr);
      report.add((flag.download()[0] != 0) == (special != 0x3F80),
                 fmt::format("{} notes {:#x}", format_name(format), special));
    }
  }
}

// ---- 2^31 + 64 elements --------------------------------------------------------------------------------------------------

void check_large(Report& report) {
  const std::int64_t elements = (std::int64_t{1} << 31) + 64, block = 64, blocks = elements / block;
  Buffer<std::uint8_t> codes(elements / 2), absmax(blocks);
  bench::fill_random(codes.data(), codes.size(), 3);
  bench::fill_random(absmax.data(), absmax.size(), 4);
  std::vector<float> host_nested(static_cast<std::size_t>(ceil_div(blocks, 256)));
  for (std::size_t i = 0; i < host_nested.size(); ++i)
    host_nested[i] = 0.001f * static_cast<float>(i % 997 + 1);
  Buffer<float> nested{std::span<const float>(host_nested)}, map{std::span<const float>(kDynamic8Map)};
  Buffer<std::uint16_t> out(elements);
  out.fill(0xA5);
  cuda::dequantize({.spec = {.format = Format::nf4, .double_quant = true},
                    .rows = 1,
                    .columns = elements,
                    .codes = codes.data(),
                    .scales8 = absmax.data(),
                    .nested_absmax = nested.data(),
                    .map = map.data(),
                    .offset = 0.05f,
                    .dtype = DType::bf16,
                    .out = out.data()},
                   nullptr);
  const auto host_codes = codes.download(), host_absmax = absmax.download();
  const auto host_out = out.download();
  ThreadPool pool(available_cores());
  std::atomic<std::int64_t> wrong = 0;
  pool.parallel_for(blocks, [&](std::int64_t b) {
    const float scale = dynamic8_decode(kDynamic8Map[host_absmax[static_cast<std::size_t>(b)]],
                                        host_nested[static_cast<std::size_t>(b / 256)], 0.05f);
    for (std::int64_t i = b * block; i < (b + 1) * block; ++i)
      if (host_out[static_cast<std::size_t>(i)] !=
          bf16_encode(mul_rn(nf4_decode(nibble(NibbleOrder::high_first, host_codes.data(), i)), scale)))
        ++wrong;
  });
  report.add(wrong == 0, fmt::format("dequantize nf4 double of 2^31 + 64 elements: {} wrong", wrong.load()));
  // And back: what was decoded is quantized again, and every code compared with the codec's. Both sides see BF16.
  Buffer<float> scales(blocks);
  codes.fill(0xA5);
  cuda::quantize({.spec = {.format = Format::nf4},
                  .rows = 1,
                  .columns = elements,
                  .source = DType::bf16,
                  .values = out.data(),
                  .codes = codes.data(),
                  .scales = scales.data()},
                 nullptr);
  const auto new_codes = codes.download();
  const auto new_scales = scales.download();
  wrong = 0;
  pool.parallel_for(blocks, [&](std::int64_t b) {
    float largest = 0.0f;
    for (std::int64_t i = b * block; i < (b + 1) * block; ++i)
      largest = std::max(largest, abs_value(bf16_decode(host_out[static_cast<std::size_t>(i)])));
    const BnbScale scale = bnb_scale(largest, true);
    if (float_bits(new_scales[static_cast<std::size_t>(b)]) != float_bits(scale.stored)) ++wrong;
    for (std::int64_t i = b * block; i < (b + 1) * block; ++i)
      if (nibble(NibbleOrder::high_first, new_codes.data(), i) !=
          nf4_encode(bnb_normalise(scale, bf16_decode(host_out[static_cast<std::size_t>(i)]))))
        ++wrong;
  });
  report.add(wrong == 0, fmt::format("quantize nf4 of 2^31 + 64 elements: {} wrong", wrong.load()));
}

}  // namespace

int run(int argc, char** argv) {
  bool reduced = false, large = false;
  std::uint64_t seed = 20261130;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--reduced")
      reduced = true;
    else if (flag == "--large")
      large = true;
    else if (flag == "--seed" && i + 1 < argc)
      seed = std::stoull(argv[++i]);
    else
      fail_input("gpu_test: unknown option {}", flag);
  }
  if (!device_is_there(seed)) return 0;
  std::vector<Shape> shapes = {{1, 1},     {1, 7},      {3, 5},          {2, 33},   {7, 96},   {5, 17},
                               {17, 100},  {31, 257},   {64, 128},       {3, 1000}, {1, 4095}, {6, 4096},
                               {1, 65537}, {2, 3, 520}, {9, 16384 + 32}, {40, 2048}};
  if (reduced) shapes = {{1, 1}, {3, 33}, {5, 128}, {2, 4100}};
  Report total;
  for (const QuantSpec& spec : all_specs(reduced)) {
    Report report;
    for (const Shape& shape : shapes) {
      check_random_codes(spec, shape, ++seed, report);
      for (const DType source : {DType::bf16, DType::f16, DType::f32})
        for (const Values kind : {Values::normal, Values::ties, Values::wide, Values::zeros})
          if (!reduced || kind == Values::normal) check_case(spec, shape, source, kind, ++seed, report);
    }
    fmt::print("{:<40} {:>6} cases, {} failed\n", to_string(spec), report.cases, report.failed);
    total.cases += report.cases;
    total.failed += report.failed;
  }
  Report rest;
  check_refusals(rest);
  if (large) check_large(rest);
  fmt::print("{:<40} {:>6} cases, {} failed\n", large ? "refusals, NaN, 2^31 + 64 elements" : "refusals, NaN",
             rest.cases, rest.failed);
  total.cases += rest.cases;
  total.failed += rest.failed;
  return exit_code(total.cases - total.failed, total.failed);
}

}  // namespace halfbyte::test

int main(int argc, char** argv) {
  return halfbyte::test::program("gpu_test", argc, argv, halfbyte::test::run);
}
