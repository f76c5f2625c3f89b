// fake_quantize: the same bits as quantize and dequantize, on every instruction set, for any strides and
// threads.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <limits>

#include "halfbyte/error.h"
#include "ops/dequantize/op.h"
#include "ops/fake_quantize/op.h"
#include "ops/quantize/op.h"
#include "tests/support/golden.h"
#include "tests/support/quantize_cases.h"

namespace halfbyte {
namespace {

using test::patterns;

std::vector<QuantSpec> activation_specs() {
  std::vector<QuantSpec> specs;
  for (const QuantSpec& spec : test::all_specs())
    if (format_info(spec.format).axis != BlockAxis::flat) specs.push_back(spec);
  return specs;
}

std::vector<float> fake(const std::vector<float>& x, std::int64_t rows, std::int64_t columns,
                        const QuantSpec& spec, ScaleScope scope, ThreadPool& pool) {
  std::vector<float> out(x.size());
  fake_quantize({.rows = rows,
                 .columns = columns,
                 .x = x.data(),
                 .x_stride = columns,
                 .out = out.data(),
                 .out_stride = columns,
                 .spec = spec,
                 .scope = scope},
                pool);
  return out;
}

TEST(FakeQuantize, IsQuantizeThenDequantizeOnEveryTarget) {
  ThreadPool one(1), three(3);
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 16}, {5, 47}, {9, 130}, {2, 4100}}) {
    const auto x = test::awkward_values(rows * columns, static_cast<unsigned>(columns));
    for (const QuantSpec& spec : activation_specs()) {
      const TensorView view{
          .dtype = DType::f32, .shape = {rows, columns}, .data = std::as_bytes(std::span(x))};
      const Array<float> expected = dequantize(quantize(view, spec, one), one);
      std::vector<float> by_row;
      for (std::int64_t row = 0; row < rows; ++row) {
        const TensorView one_row{
            .dtype = DType::f32,
            .shape = {columns},
            .data = std::as_bytes(std::span(x).subspan(static_cast<std::size_t>(row * columns),
                                                       static_cast<std::size_t>(columns)))};
        const Array<float> part = dequantize(quantize(one_row, spec, one), one);
        by_row.insert(by_row.end(), part.begin(), part.end());
      }
      const auto whole_bits = patterns({expected.begin(), expected.end()}), row_bits = patterns(by_row);
      test::for_each_target([&](const std::string& target) {
        ASSERT_EQ(patterns(fake(x, rows, columns, spec, ScaleScope::tensor, three)), whole_bits)
            << to_string(spec) << " " << rows << "x" << columns << " " << target;
        ASSERT_EQ(patterns(fake(x, rows, columns, spec, ScaleScope::row, one)), row_bits)
            << to_string(spec) << " " << rows << "x" << columns << " " << target;
      });
      setenv("HALFBYTE_FORCE", "fake_quantize/reference", 1);
      ASSERT_EQ(patterns(fake(x, rows, columns, spec, ScaleScope::tensor, one)), whole_bits)
          << to_string(spec);
      ASSERT_EQ(patterns(fake(x, rows, columns, spec, ScaleScope::row, one)), row_bits) << to_string(spec);
      unsetenv("HALFBYTE_FORCE");
    }
  }
}

TEST(FakeQuantize, WorksInPlaceAndWithStrides) {
  ThreadPool pool(2);
  const std::int64_t rows = 70, columns = 100, stride = 113;
  const auto x = test::awkward_values(rows * columns, 8);
  for (const QuantSpec& spec : activation_specs()) {
    const auto expected = fake(x, rows, columns, spec, ScaleScope::tensor, pool);
    std::vector<float> wide(static_cast<std::size_t>(rows * stride), -7.0f);
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(x.data() + row * columns, columns, wide.data() + row * stride);
    fake_quantize({.rows = rows,
                   .columns = columns,
                   .x = wide.data(),
                   .x_stride = stride,
                   .out = wide.data(),
                   .out_stride = stride,
                   .spec = spec},
                  pool);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column)
        ASSERT_EQ(float_bits(wide[static_cast<std::size_t>(row * stride + column)]),
                  float_bits(expected[static_cast<std::size_t>(row * columns + column)]));
      for (std::int64_t column = columns; column < stride; ++column)
        ASSERT_EQ(wide[static_cast<std::size_t>(row * stride + column)], -7.0f)
            << "the gap between rows is not touched";
    }
  }
}

TEST(FakeQuantize, CompressedTensorsActivations) {
  const test::Golden golden("nvfp4.safetensors");
  ThreadPool pool(2);
  const auto x = golden.floats("f32.x");
  std::vector<float> out(x.size());
  fake_quantize({.rows = 10,
                 .columns = 96,
                 .x = x.data(),
                 .x_stride = 96,
                 .out = out.data(),
                 .out_stride = 96,
                 .spec = {.format = Format::nvfp4, .global_scale = GlobalScaleRule::compressed_tensors},
                 .global_scale = golden.floats("f32.ct.input_global_scale")[0]},
                pool);
  EXPECT_EQ(patterns(out), patterns(golden.floats("f32.ct.x_fakequant")));
}

TEST(FakeQuantize, RefusesNonFiniteValuesAndWrongArguments) {
  ThreadPool pool(2);
  for (const QuantSpec& spec : activation_specs())
    for (const std::int64_t bad : {0, 47, 48, 49 * 3 + 48}) {
      std::vector<float> x(49 * 4, 1.0f);
      x[static_cast<std::size_t>(bad)] =
          bad % 2 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
      for (const ScaleScope scope : {ScaleScope::tensor, ScaleScope::row}) {
        try {
          fake(x, 4, 49, spec, scope, pool);
          FAIL() << to_string(spec);
        } catch (const Error& error) {
          const std::string place =
              "row " + std::to_string(bad / 49) + ", column " + std::to_string(bad % 49) + " of 4 x 49";
          EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
        }
      }
    }
  const std::vector<float> x(16, 1.0f);
  EXPECT_THROW(fake(x, 1, 16, {.format = Format::nf4}, ScaleScope::tensor, pool), Error);
  EXPECT_THROW(fake(x, 1, 16, {.format = Format::mxfp4, .block_size = 16}, ScaleScope::tensor, pool), Error);
  std::vector<float> out(16);
  FakeQuantize args{.rows = 2,
                    .columns = 8,
                    .x = x.data(),
                    .x_stride = 7,
                    .out = out.data(),
                    .out_stride = 8,
                    .spec = {.format = Format::int8}};
  EXPECT_THROW(fake_quantize(args, pool), Error);
  args.x_stride = 8;
  args.spec = {.format = Format::nvfp4};
  args.global_scale = 0.0f;
  EXPECT_THROW(fake_quantize(args, pool), Error);
}

TEST(FakeQuantize, FourSixNeverRaisesTheError) {
  ThreadPool pool(1);
  const auto x = test::awkward_values(16 * 64, 12);
  const auto plain = fake(x, 16, 64, {.format = Format::nvfp4}, ScaleScope::tensor, pool);
  const auto better = fake(x, 16, 64, {.format = Format::nvfp4, .four_six = true}, ScaleScope::tensor, pool);
  double before = 0, after = 0;
  for (std::size_t block = 0; block < x.size(); block += 16) {
    double one = 0, two = 0;
    for (std::size_t i = block; i < block + 16; ++i) {
      one += std::pow(static_cast<double>(plain[i]) - static_cast<double>(x[i]), 2);
      two += std::pow(static_cast<double>(better[i]) - static_cast<double>(x[i]), 2);
    }
    EXPECT_LE(two, one * (1 + 1e-5));
    before += one;
    after += two;
  }
  EXPECT_LT(after, before) << "on this data some block is better with 4";
}

RC_GTEST_PROP(FakeQuantizeProperties, AnyFiniteBitsMeetTheReference, ()) {
  const auto columns = *rc::gen::inRange<std::int64_t>(1, 70);
  const auto rows = *rc::gen::inRange<std::int64_t>(1, 4);
  const auto low = *rc::gen::inRange<std::uint32_t>(0, 0x7F000000u);
  std::vector<float> x;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const auto bits = *rc::gen::arbitrary<std::uint32_t>();
    x.push_back(bits_float((bits & 0x80000000u) | (low + bits % 0x01000000u) % 0x7F000000u));
  }
  ThreadPool pool(1);
  for (const QuantSpec& spec : activation_specs()) {
    const auto fast = fake(x, rows, columns, spec, ScaleScope::tensor, pool);
    setenv("HALFBYTE_FORCE", "fake_quantize/reference", 1);
    const auto slow = fake(x, rows, columns, spec, ScaleScope::tensor, pool);
    unsetenv("HALFBYTE_FORCE");
    RC_ASSERT(patterns(fast) == patterns(slow));
  }
}

}  // namespace
}  // namespace halfbyte
