// dequantize: every implementation against the reference, any range of rows, all types, and broken tensors
// refused.
#include <gtest/gtest.h>

#include <cstdlib>

#include "halfbyte/error.h"
#include "ops/dequantize/op.h"
#include "ops/quantize/op.h"
#include "tests/support/golden.h"
#include "tests/support/quantize_cases.h"

namespace halfbyte {
namespace {

std::vector<std::uint8_t> rows_of(const QuantizedTensor& q, std::int64_t first, std::int64_t last,
                                  DType dtype, ThreadPool& pool) {
  const Extent extent = extent_of(q.shape);
  std::vector<std::uint8_t> out(
      static_cast<std::size_t>((last - first) * extent.columns * dtype_bytes(dtype)) + 1);
  // One byte off any alignment.
  dequantize_rows(q, first, last, dtype, std::as_writable_bytes(std::span(out).subspan(1)), pool);
  return {out.begin() + 1, out.end()};
}

TEST(Dequantize, MeetsTheReferenceForAnyRowsAndThreads) {
  ThreadPool one(1), three(3);
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 33}, {5, 4097}, {40, 1000}}) {
    const test::Source source(DType::f32, {rows, columns}, test::awkward_values(rows * columns, 9));
    for (const QuantSpec& spec : test::all_specs()) {
      const QuantizedTensor q = quantize(source.view, spec, one);
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        setenv("HALFBYTE_FORCE", "dequantize/reference", 1);
        const auto whole = rows_of(q, 0, rows, dtype, one);
        unsetenv("HALFBYTE_FORCE");
        ASSERT_EQ(rows_of(q, 0, rows, dtype, three), whole) << to_string(spec);
        const std::int64_t row_bytes = columns * dtype_bytes(dtype);
        for (const auto& [first, last] :
             {std::pair<std::int64_t, std::int64_t>{rows / 2, rows}, {0, 1}, {rows / 3, rows / 3}}) {
          const std::vector<std::uint8_t> expected(whole.begin() + first * row_bytes,
                                                   whole.begin() + last * row_bytes);
          ASSERT_EQ(rows_of(q, first, last, dtype, one), expected) << to_string(spec) << " rows " << first;
        }
      }
    }
  }
}

TEST(Dequantize, EveryCodeOfEveryFormat) {
  ThreadPool pool(1);
  for (const FormatInfo& info : kFormats) {
    if (info.bits == 16) continue;
    const std::int64_t codes = info.bits == 4 ? 16 : 256;
    QuantizedTensor q = make_quantized({.format = info.format}, {1, codes}, DType::f32);
    for (std::int64_t i = 0; i < q.codes.size(); ++i) {
      const std::int64_t low = 2 * i, high = 2 * i + 1;
      q.codes[i] = static_cast<std::uint8_t>(codes == 256                   ? i
                                             : info.axis == BlockAxis::flat ? low << 4 | high
                                                                            : high << 4 | low);
    }
    const bool e8m0 = info.scale == ScaleKind::e8m0;
    for (std::uint8_t& scale : q.scales8) scale = e8m0 ? 128 : 0x40;  // both stand for 2
    for (float& scale : q.scales) scale = 2.0f;
    setenv("HALFBYTE_FORCE", "dequantize/reference", 1);
    const auto expected = rows_of(q, 0, 1, DType::f32, pool);
    unsetenv("HALFBYTE_FORCE");
    const Array<float> values = dequantize(q, pool);
    EXPECT_EQ(test::patterns({values.begin(), values.end()}), test::patterns([&] {
                std::vector<float> v(static_cast<std::size_t>(codes));
                std::memcpy(v.data(), expected.data(), expected.size());
                return v;
              }()))
        << info.name;
    // The largest level times 2, at the code that each format gives it.
    const std::int64_t top = info.format == Format::nf4          ? 15
                             : info.format == Format::fp4        ? 3
                             : info.format == Format::mxfp8_e4m3 ? 0x7E
                             : info.format == Format::mxfp8_e5m2 ? 0x7B
                             : info.format == Format::int8       ? 127
                                                                 : 7;
    const float level = info.axis == BlockAxis::flat        ? 1.0f
                        : info.format == Format::mxfp8_e4m3 ? 448.0f
                        : info.format == Format::mxfp8_e5m2 ? 57344.0f
                        : info.format == Format::int8       ? 127.0f
                        : info.format == Format::int4       ? 7.0f
                                                            : 6.0f;
    EXPECT_EQ(values[top], 2.0f * level) << info.name;
  }
}

TEST(Dequantize, QuantizingDecodedValuesChangesNothing) {
  ThreadPool pool(2);
  const test::Source source(DType::f32, {6, 96}, test::awkward_values(6 * 96, 4));
  for (const QuantSpec& spec : {QuantSpec{.format = Format::nvfp4}, QuantSpec{.format = Format::mxfp4},
                                QuantSpec{.format = Format::mxfp8_e4m3}, QuantSpec{.format = Format::int8}}) {
    const QuantizedTensor q = quantize(source.view, spec, pool);
    const Array<float> once = dequantize(q, pool);
    const TensorView again{.dtype = DType::f32, .shape = q.shape, .data = once.as_bytes()};
    QuantizeOptions options;
    if (spec.format == Format::nvfp4) options.global_scale = q.global_scale;
    const Array<float> twice = dequantize(quantize(again, spec, pool, options), pool);
    for (std::int64_t i = 0; i < once.size(); ++i) {
      // A block scale may only move when no value reaches the largest level; the values then stay levels.
      ASSERT_NEAR(twice[i], once[i], std::abs(once[i]) * 0.2f) << to_string(spec) << " " << i;
    }
  }
}

TEST(Dequantize, RefusesBrokenTensorsAndRanges) {
  ThreadPool pool(1);
  const test::Source source(DType::f32, {4, 40}, test::awkward_values(160, 2));
  QuantizedTensor q = quantize(source.view, {.format = Format::nvfp4}, pool);
  std::vector<std::byte> out(4 * 40 * 4);
  EXPECT_NO_THROW(dequantize_rows(q, 0, 4, DType::f32, out, pool));
  EXPECT_THROW(dequantize_rows(q, 0, 5, DType::f32, out, pool), Error);
  EXPECT_THROW(dequantize_rows(q, -1, 3, DType::f32, out, pool), Error);
  EXPECT_THROW(dequantize_rows(q, 2, 1, DType::f32, out, pool), Error);
  EXPECT_THROW(dequantize_rows(q, 0, 3, DType::f32, out, pool), Error);
  EXPECT_THROW(dequantize_rows(q, 0, 4, DType::i8, out, pool), Error);
  q.codes = Array<std::uint8_t>(4 * 20 - 1);
  EXPECT_THROW(dequantize_rows(q, 0, 4, DType::f32, out, pool), Error);
}

}  // namespace
}  // namespace halfbyte
