// The fused activation kernel against the CPU ops in sequence, bit for bit: formats and rules x forms x input types x orders and
// residual channels x layouts on random ragged shapes, with guarded outputs.
//   gpu_fused_activation_test [--reduced] [--shapes N] [--seed N]     --reduced: few cases, for compute-sanitizer
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "core/fail.h"
#include "core/thread_pool.h"
#include "device/cuda/memory.h"
#include "formats/quantized_tensor.h"
#include "formats/source_dtype.h"
#include "formats/swizzle.h"
#include "ops/fused_activation/cuda.h"
#include "tests/gpu/program.h"

namespace halfbyte::test {

namespace {

using cuda::Buffer;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kGuard = 64;
constexpr std::uint8_t kUntouched = 0xA5;

std::vector<QuantSpec> all_specs() {
  std::vector<QuantSpec> specs;
  for (const auto rule : {GlobalScaleRule::pow2, GlobalScaleRule::amax, GlobalScaleRule::compressed_tensors,
                          GlobalScaleRule::modelopt})
    specs.push_back({.format = Format::nvfp4, .global_scale = rule});
  for (const auto rule : {GlobalScaleRule::pow2, GlobalScaleRule::amax}) {
    specs.push_back({.format = Format::nvfp4, .global_scale = rule, .four_six = true});
    specs.push_back({.format = Format::nvfp4, .global_scale = rule, .scale_search = true});
  }
  for (const auto rule : {MxScaleRule::floor, MxScaleRule::ceil, MxScaleRule::rceil, MxScaleRule::even,
                          MxScaleRule::compressed_tensors, MxScaleRule::modelopt})
    specs.push_back({.format = Format::mxfp4, .mx_scale = rule});
  return specs;
}

// Everything a call reads and writes, on the host.
struct Case {
  FusedActivation args;
  std::uint64_t seed = 0;
  Bytes x, up, residual, weight, codes, scales, residual_out;
  std::vector<std::int32_t> order, chosen;
  std::vector<float> row_scales;
  float global = 1.0f;

  std::string name() const {
    return fmt::format("{}, form {}, {} {}x{} -> {} + {}, scope {}, layouts {}/{}, seed {}",
                       to_string(args.spec), static_cast<int>(args.form), dtype_name(args.dtype), args.rows,
                       args.columns, activation_width(args), args.chosen_count, static_cast<int>(args.scope),
                       static_cast<int>(args.layout), static_cast<int>(args.scale_layout), seed);
  }
};

Bytes random_values(std::mt19937_64& random, DType dtype, std::int64_t count, float scale) {
  Bytes bytes(static_cast<std::size_t>(count * dtype_bytes(dtype)));
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < count; ++i) {
    float value = normal(random) * scale;
    if (random() % 50 == 0) value *= 30.0f;
    if (random() % 40 == 0) value = random() % 2 ? 0.0f : -0.0f;
    store_element(dtype, reinterpret_cast<std::byte*>(bytes.data()), i, value);
  }
  return bytes;
}

Case make_case(const QuantSpec& spec, std::mt19937_64& random, bool reduced) {
  Case c;
  FusedActivation& a = c.args;
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  c.seed = random();
  a.spec = spec;
  a.form = static_cast<ActivationForm>(below(3));
  constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};
  a.dtype = kTypes[below(3)];
  a.rows = 1 + below(reduced ? 3 : 9);
  const std::int64_t block = effective_block(spec, 0);
  const std::uint64_t widest = reduced ? 700 : random() % 8 ? 2500 : 20000;
  a.columns = block * (1 + below(widest / static_cast<std::uint64_t>(block)));
  const bool ordered = random() % 3 == 0;
  if (ordered) a.columns = std::max<std::int64_t>(1, a.columns - below(static_cast<std::uint64_t>(block)));
  a.width = ordered ? (a.columns + block - 1) / block * block + block * below(2) : 0;
  const std::int64_t width = activation_width(a);
  if (random() % 2) a.chosen_count = block * (1 + below(static_cast<std::uint64_t>(width / block)));
  a.scope = random() % 3 ? ScaleScope::tensor : ScaleScope::row;
  a.layout = random() % 2 ? ResidualLayout::appended : ResidualLayout::interleaved;
  a.scale_layout = random() % 2 ? ScaleLayout::rows : ScaleLayout::tiles_128x4;
  a.norm_dtype = random() % 2 ? DType::f32 : DType::bf16;
  a.eps = 1e-5f;
  a.x_stride = a.columns + (random() % 2 ? 0 : below(40));
  a.up_stride = a.columns + (random() % 2 ? 0 : 8 * below(5));
  // Now and then numbers for which the kernel's short ways do not hold.
  const bool wide = a.dtype != DType::f16 && a.form != ActivationForm::norm && random() % 6 == 0;
  const float scale = wide            ? std::ldexp(1.0f, static_cast<int>(below(180)) - 120)
                      : random() % 10 ? 1.0f
                                      : 0.0f;
  c.x = random_values(random, a.dtype, a.rows * a.x_stride, scale);
  c.up = random_values(random, a.dtype, a.rows * a.up_stride, 1.0f);
  if (a.form == ActivationForm::norm) {
    if (random() % 4) c.residual = random_values(random, a.dtype, a.rows * a.columns, 2.0f);
    if (!c.residual.empty() || random() % 2)
      c.residual_out.assign(static_cast<std::size_t>(a.rows * a.columns * dtype_bytes(a.dtype)) + kGuard,
                            kUntouched);
    c.weight = random_values(random, a.norm_dtype, a.columns, 1.0f);
  }
  if (ordered) {
    c.order.resize(static_cast<std::size_t>(width), -1);
    std::iota(c.order.begin(), c.order.begin() + a.columns, 0);
    std::shuffle(c.order.begin(), c.order.end(), random);
  }
  c.chosen.resize(static_cast<std::size_t>(width));
  std::iota(c.chosen.begin(), c.chosen.end(), 0);
  std::shuffle(c.chosen.begin(), c.chosen.end(), random);
  c.chosen.resize(static_cast<std::size_t>(a.chosen_count));
  const std::int64_t blocks = (width + a.chosen_count) / block;
  c.codes.assign(static_cast<std::size_t>(a.rows * blocks * block / 2) + kGuard, kUntouched);
  c.scales.assign(
      static_cast<std::size_t>(a.scale_layout == ScaleLayout::rows ? a.rows * blocks
                                                                   : swizzled_bytes(a.rows, blocks)) +
          kGuard,
      kUntouched);
  c.row_scales.assign(static_cast<std::size_t>(a.rows) + 4, -1.0f);
  // About what a calibration would give: some values saturate. A power of two under pow2, but not always.
  const float amax = (wide ? scale * 40.0f : 30.0f) * (0.2f + 0.01f * static_cast<float>(below(100)));
  c.global = nvfp4_global_scale(spec.global_scale, amax, DType::f32);
  if (spec.global_scale == GlobalScaleRule::pow2 && random() % 5 == 0) c.global *= 1.3f;
  return c;
}

void run_reference(Case& c, ThreadPool& pool) {
  FusedActivation a = c.args;
  const auto given = [](auto& array) { return array.empty() ? nullptr : array.data(); };
  a.x = c.x.data();
  a.up = c.up.data();
  a.residual = given(c.residual);
  a.residual_out = given(c.residual_out);
  a.norm_weight = given(c.weight);
  a.order = given(c.order);
  a.chosen = given(c.chosen);
  a.global_scale = &c.global;
  a.codes = c.codes.data();
  a.scales = c.scales.data();
  a.row_scales = c.row_scales.data();
  fused_activation_reference(a, pool);
}

template <typename T>
Buffer<T> upload(const std::vector<T>& host) {
  return Buffer<T>(std::span<const T>(host));
}

std::string first_difference(const char* what, const Bytes& got, const Bytes& want) {
  for (std::size_t i = 0; i < want.size(); ++i)
    if (got[i] != want[i])
      return fmt::format("byte {} of {} of {} is 0x{:02X}, expected 0x{:02X}", i, want.size(), what, got[i],
                         want[i]);
  return "";
}

std::string check(const Case& c) {
  FusedActivation a = c.args;
  const auto x = upload(c.x), up = upload(c.up), residual = upload(c.residual), weight = upload(c.weight);
  const auto order = upload(c.order), chosen = upload(c.chosen);
  const Buffer<float> global(std::span<const float>(&c.global, 1));
  const auto filled = [](std::size_t size) { return upload(Bytes(size, kUntouched)); };
  const auto codes = filled(c.codes.size()), scales = filled(c.scales.size());
  auto residual_out = filled(c.residual_out.size());
  const bool in_place = c.seed % 2 && !c.residual.empty();
  if (in_place)
    cuda::check_status(
        cudaMemcpy(residual_out.data(), c.residual.data(), c.residual.size(), cudaMemcpyHostToDevice),
        "copying");
  const auto row_scales = upload(std::vector<float>(c.row_scales.size(), -1.0f));
  Buffer<int> not_finite(1);
  not_finite.fill(0);
  a.x = x.data();
  a.up = up.data();
  a.residual = in_place ? residual_out.data() : residual.data();
  a.residual_out = residual_out.data();
  a.norm_weight = weight.data();
  a.order = order.data();
  a.chosen = chosen.data();
  a.global_scale = global.data();
  a.codes = codes.data();
  a.scales = scales.data();
  a.row_scales = row_scales.data();
  a.not_finite = not_finite.data();
  cuda::fused_activation(a, nullptr);
  std::string problem = first_difference("codes", codes.download(), c.codes);
  if (problem.empty()) problem = first_difference("scales", scales.download(), c.scales);
  if (problem.empty())
    problem = first_difference("the residual stream", residual_out.download(), c.residual_out);
  if (problem.empty() && row_scales.download() != c.row_scales) problem = "the rows' scales differ";
  if (problem.empty() && not_finite.download()[0]) problem = "finite values were called not finite";
  return problem;
}

// NaN and infinities are noticed wherever they stand.
std::string check_not_finite(ActivationForm form) {
  std::mt19937_64 random(5);
  Case c = make_case({.format = Format::nvfp4}, random, true);
  const std::int64_t columns = 64;
  c.args = {.rows = 2,
            .columns = columns,
            .dtype = DType::bf16,
            .form = form,
            .x_stride = columns,
            .up_stride = columns,
            .norm_dtype = DType::bf16,
            .spec = {.format = Format::nvfp4}};
  for (const std::uint16_t bad : {0x7FC0, 0x7F80, 0xFF80})
    for (const std::int64_t at : {0, 17, 127}) {
      std::vector<std::uint16_t> x(2 * columns, 0x3F80), ones(2 * columns, 0x3F80);
      x[static_cast<std::size_t>(at)] = bad;
      const auto device_x = upload(x), device_ones = upload(ones);
      const Buffer<std::uint8_t> codes(columns), scales(2 * columns / 16);
      const float one = 1.0f;
      const Buffer<float> global(std::span<const float>(&one, 1));
      Buffer<int> not_finite(1);
      not_finite.fill(0);
      FusedActivation a = c.args;
      a.x = device_x.data();
      a.up = a.norm_weight = device_ones.data();
      a.global_scale = global.data();
      a.codes = codes.data();
      a.scales = scales.data();
      a.not_finite = not_finite.data();
      cuda::fused_activation(a, nullptr);
      if (!not_finite.download()[0]) return fmt::format("0x{:04X} at {} was not noticed", bad, at);
    }
  return "";
}

}  // namespace

int run(int argc, char** argv) {
  const ShapeOptions options =
      parse_shape_options("gpu_fused_activation_test", argc, argv, {.shapes = 300, .seed = 20261201}, 10);
  if (!device_is_there(options.seed)) return 0;
  ThreadPool pool(available_cores());
  std::mt19937_64 random(options.seed);
  Tally tally;
  for (const QuantSpec& spec : all_specs()) {
    const std::int64_t before = tally.failed;
    std::vector<Case> cases(static_cast<std::size_t>(options.shapes));
    for (Case& c : cases) c = make_case(spec, random, options.reduced);
    pool.parallel_for(options.shapes, [&](std::int64_t i) {
      ThreadPool alone(1);
      run_reference(cases[static_cast<std::size_t>(i)], alone);
    });
    for (const Case& c : cases) tally.add(check(c), c.name());
    fmt::print("{:<40} {:>6} cases, {} failed\n", to_string(spec), options.shapes, tally.failed - before);
  }
  for (const auto form : {ActivationForm::plain, ActivationForm::norm, ActivationForm::silu_mul})
    tally.add(check_not_finite(form), fmt::format("not finite, form {}", static_cast<int>(form)));
  return exit_code(tally.passed, tally.failed);
}

}  // namespace halfbyte::test

int main(int argc, char** argv) {
  return halfbyte::test::program("gpu_fused_activation_test", argc, argv, halfbyte::test::run);
}
