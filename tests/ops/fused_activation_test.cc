// The fused activation op on the CPU: its parts against the ops that it joins, its layouts against each other.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "formats/packing.h"
#include "formats/quantized_tensor.h"
#include "formats/source_dtype.h"
#include "formats/swizzle.h"
#include "halfbyte/error.h"
#include "ops/augment/op.h"
#include "ops/dequantize/op.h"
#include "ops/fused_activation/op.h"
#include "ops/fused_activation/silu.h"
#include "ops/rms_norm/op.h"
#include "ops/row_math/op.h"
#include "ops/silu_mul/op.h"
#include "ops/transform_input/op.h"

namespace halfbyte {
namespace {

using Floats = std::vector<float>;

Floats noise(std::int64_t count, unsigned seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(random) * scale;
  return values;
}

struct Outputs {
  std::vector<std::uint8_t> codes, scales;
  Floats row_scales;
};

// Runs the op on float32, with buffers of the right size.
Outputs run(FusedActivation args) {
  const std::int64_t block = effective_block(args.spec, 0),
                     width = activation_width(args) + args.chosen_count;
  Outputs out;
  out.codes.resize(static_cast<std::size_t>(args.rows * width / 2), 0xA5);
  out.scales.resize(static_cast<std::size_t>(args.scale_layout == ScaleLayout::rows
                                                 ? args.rows * width / block
                                                 : swizzled_bytes(args.rows, width / block)),
                    0xA5);
  out.row_scales.resize(static_cast<std::size_t>(args.rows));
  args.codes = out.codes.data();
  args.scales = out.scales.data();
  args.row_scales = out.row_scales.data();
  ThreadPool pool(2);
  fused_activation_reference(args, pool);
  return out;
}

// The values that the codes stand for, [M, W + S].
Floats decoded(const FusedActivation& args, const Outputs& out) {
  const std::int64_t width = activation_width(args) + args.chosen_count;
  Floats values(static_cast<std::size_t>(args.rows * width));
  for (std::int64_t m = 0; m < args.rows; ++m) {
    QuantizedTensor row = make_quantized(args.spec, {1, width}, DType::f32);
    std::copy_n(out.codes.data() + m * width / 2, width / 2, row.codes.data());
    std::copy_n(out.scales.data() + m * row.scales8.size(), row.scales8.size(), row.scales8.data());
    if (args.spec.format == Format::nvfp4)
      row.global_scale =
          args.scope == ScaleScope::row ? out.row_scales[static_cast<std::size_t>(m)] : *args.global_scale;
    dequantize_reference(
        {.tensor = &row, .columns = width, .first = 0, .last = width, .out = values.data() + m * width});
  }
  return values;
}

class FusedActivationOps : public testing::TestWithParam<QuantSpec> {};

// add, rms_norm, transform_input and augment one after the other.
TEST_P(FusedActivationOps, IsTheOpsInSequence) {
  const std::int64_t rows = 5, columns = 200, width = 224, chosen = 64;
  const Floats x = noise(rows * columns, 1, 3.0f), residual = noise(rows * columns, 2),
               weight = noise(columns, 3);
  std::vector<std::int32_t> order(static_cast<std::size_t>(width), -1), list;
  for (std::int32_t c = 0; c < columns; ++c)
    order[static_cast<std::size_t>(c)] = c * 7 % static_cast<int>(columns - 1);
  order[0] = static_cast<std::int32_t>(columns - 1);
  for (std::int32_t j = 0; j < chosen; ++j) list.push_back(j * 3 % static_cast<std::int32_t>(width));
  for (const ScaleScope scope : {ScaleScope::tensor, ScaleScope::row}) {
    const float global = 0x1p-8f;
    Floats stream(x.size());
    FusedActivation args{.rows = rows,
                         .columns = columns,
                         .dtype = DType::f32,
                         .form = ActivationForm::norm,
                         .x = x.data(),
                         .x_stride = columns,
                         .residual = residual.data(),
                         .residual_out = stream.data(),
                         .norm_weight = weight.data(),
                         .eps = 1e-5f,
                         .order = order.data(),
                         .width = width,
                         .chosen = list.data(),
                         .chosen_count = chosen,
                         .spec = GetParam(),
                         .scope = scope,
                         .global_scale = &global};
    const Floats got = decoded(args, run(args));

    ThreadPool pool(2);
    Floats sum(x.size()), gathered(static_cast<std::size_t>(rows * width)),
        want(static_cast<std::size_t>(rows * (width + chosen)));
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] = x[i] + residual[i];
    EXPECT_EQ(stream, sum);
    rms_norm({.rows = rows,
              .columns = columns,
              .x = sum.data(),
              .x_stride = columns,
              .weight = weight.data(),
              .eps = 1e-5f,
              .out = sum.data(),
              .out_stride = columns},
             pool);
    transform_input({.rows = rows,
                     .channels = columns,
                     .x = sum.data(),
                     .columns = order.data(),
                     .width = width,
                     .out = gathered.data()},
                    pool);
    Augment augmented{.rows = rows,
                      .columns = width,
                      .x = gathered.data(),
                      .residual = list.data(),
                      .residual_count = chosen,
                      .spec = GetParam(),
                      .scope = scope,
                      .shared_scale = true,
                      .out = want.data()};
    if (scope == ScaleScope::tensor && GetParam().format == Format::nvfp4) augmented.global_scale = global;
    augment(augmented, pool);
    EXPECT_EQ(got, want) << to_string(GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, FusedActivationOps,
    testing::Values(QuantSpec{.format = Format::nvfp4},
                    QuantSpec{.format = Format::nvfp4, .global_scale = GlobalScaleRule::amax},
                    QuantSpec{
                        .format = Format::nvfp4, .global_scale = GlobalScaleRule::amax, .scale_search = true},
                    QuantSpec{.format = Format::nvfp4, .four_six = true}, QuantSpec{.format = Format::mxfp4},
                    QuantSpec{.format = Format::mxfp4, .mx_scale = MxScaleRule::even}));

TEST(FusedActivation, ItsSiluIsThatOfTheOp) {
  Floats gate = noise(20000, 5, 4.0f), up = noise(20000, 6);
  for (const float edge :
       {0.0f, -0.0f, 87.0f, -87.0f, 88.5f, -88.5f, 126.0f, -1000.0f, 1000.0f, 1e-30f, -1e-30f, 3e38f})
    gate.push_back(edge), up.push_back(1.0f);
  Floats want(gate.size());
  ThreadPool pool(1);
  silu_mul(gate.data(), up.data(), want.data(), static_cast<std::int64_t>(gate.size()), pool);
  const std::string_view target = row_math_target();
  const bool fused =
      target.starts_with("AVX") || target == "NEON";  // where Highway's products and sums are fused
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const float got = silu_mul(gate[i], up[i]);
    if (fused)
      ASSERT_EQ(float_bits(got), float_bits(want[i])) << gate[i];
    else
      ASSERT_NEAR(got, want[i], 1e-6f * std::abs(want[i])) << gate[i];
  }
}

TEST(FusedActivation, LayoutsHoldTheSameBlocks) {
  const std::int64_t rows = 130, columns = 96, chosen = 32, blocks = (columns + chosen) / 16;
  const Floats x = noise(rows * columns, 7);
  std::vector<std::int32_t> last;
  for (std::int32_t j = 0; j < chosen; ++j) last.push_back(static_cast<std::int32_t>(columns - chosen) + j);
  const float global = 0.002f;
  FusedActivation args{.rows = rows,
                       .columns = columns,
                       .dtype = DType::f32,
                       .x = x.data(),
                       .x_stride = columns,
                       .chosen = last.data(),
                       .chosen_count = chosen,
                       .spec = {.format = Format::nvfp4, .global_scale = GlobalScaleRule::amax},
                       .global_scale = &global};
  const Outputs appended = run(args);
  args.layout = ResidualLayout::interleaved;
  const Outputs interleaved = run(args);
  // main 0 1 2 3, then main 4, residual 0, main 5, residual 1
  const std::int64_t from[] = {0, 1, 2, 3, 4, 6, 5, 7};
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t to = m * blocks + b, at = m * blocks + from[b];
      ASSERT_EQ(interleaved.scales[static_cast<std::size_t>(to)],
                appended.scales[static_cast<std::size_t>(at)]);
      ASSERT_TRUE(std::equal(interleaved.codes.begin() + to * 8, interleaved.codes.begin() + to * 8 + 8,
                             appended.codes.begin() + at * 8));
    }
  args.scale_layout = ScaleLayout::tiles_128x4;
  std::vector<std::uint8_t> tiled(static_cast<std::size_t>(swizzled_bytes(rows, blocks)));
  swizzle_scales(interleaved.scales, rows, blocks, tiled);
  EXPECT_EQ(run(args).scales, tiled);
}

TEST(FusedActivation, RoundsTheResidualStreamToItsType) {
  const std::vector<std::uint16_t> x(32, bf16_encode(1.0f)), residual(32, bf16_encode(0.00390625f * 1.5f));
  std::vector<std::uint16_t> out(32);
  const Floats weight(32, 1.0f);
  const float global = 1.0f;
  run({.rows = 1,
       .columns = 32,
       .dtype = DType::bf16,
       .form = ActivationForm::norm,
       .x = x.data(),
       .x_stride = 32,
       .residual = residual.data(),
       .residual_out = out.data(),
       .norm_weight = weight.data(),
       .spec = {.format = Format::nvfp4},
       .global_scale = &global});
  for (const std::uint16_t code : out)
    EXPECT_EQ(bf16_decode(code), 1.0078125f);  // 1.00586 lies between 1 and this
}

TEST(FusedActivation, RefusesWhatMakesNoSense) {
  const Floats x(64);
  const float global = 1.0f;
  std::uint8_t codes[64], scales[64];
  const FusedActivation good{.rows = 1,
                             .columns = 32,
                             .dtype = DType::f32,
                             .x = x.data(),
                             .x_stride = 32,
                             .spec = {.format = Format::nvfp4},
                             .global_scale = &global,
                             .codes = codes,
                             .scales = scales};
  EXPECT_NO_THROW(check_fused_activation(good));
  const auto refused = [&](const std::function<void(FusedActivation&)>& change, std::string_view part) {
    FusedActivation args = good;
    change(args);
    try {
      check_fused_activation(args);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::bad_input &&
             std::string_view(error.what()).find(part) != std::string_view::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused([](auto& a) { a.spec.format = Format::int4; }, "int4"));
  EXPECT_TRUE(refused([](auto& a) { a.columns = 24; }, "24 columns"));
  EXPECT_TRUE(refused([](auto& a) { a.chosen_count = 8; }, "8 residual"));
  EXPECT_TRUE(refused([](auto& a) { a.chosen_count = 16; }, "chosen is null"));
  EXPECT_TRUE(refused([](auto& a) { a.width = 48; }, "without an order"));
  EXPECT_TRUE(refused([](auto& a) { a.global_scale = nullptr; }, "global_scale is null"));
  EXPECT_TRUE(refused([](auto& a) { a.scope = ScaleScope::row; }, "row_scales is null"));
  EXPECT_TRUE(refused([](auto& a) { a.form = ActivationForm::norm; }, "norm_weight is null"));
  EXPECT_TRUE(refused([](auto& a) { a.form = ActivationForm::silu_mul; }, "up is null"));
  EXPECT_TRUE(refused([](auto& a) { a.x_stride = 31; }, "31 elements apart"));
  EXPECT_TRUE(refused([](auto& a) { a.dtype = DType::i32; }, "I32"));
}

}  // namespace
}  // namespace halfbyte
