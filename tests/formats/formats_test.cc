// The list of formats, validation of specs, sizes of quantized tensors, and properties of the codecs.
#include "formats/formats.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "formats/e5m2.h"
#include "formats/fp4.h"
#include "formats/mxfp4.h"
#include "formats/nf4.h"
#include "formats/quantized_tensor.h"
#include "halfbyte/error.h"

namespace halfbyte {
namespace {

std::string error_of(const QuantSpec& spec) {
  try {
    validate(spec);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "";
}

TEST(Formats, NamesGoThereAndBack) {
  for (const FormatInfo& row : kFormats) EXPECT_EQ(format_from_name(row.name), row.format);
  EXPECT_EQ(format_from_name("mxfp8"), Format::mxfp8_e4m3);
  for (int rule = 0; rule < 4; ++rule) {
    const auto value = static_cast<GlobalScaleRule>(rule);
    EXPECT_EQ(global_scale_rule_from_name(global_scale_rule_name(value)), value);
  }
  for (int rule = 0; rule < 6; ++rule) {
    const auto value = static_cast<MxScaleRule>(rule);
    EXPECT_EQ(mx_scale_rule_from_name(mx_scale_rule_name(value)), value);
  }
  EXPECT_EQ(global_scale_rule_from_name("compressed_tensors"), GlobalScaleRule::compressed_tensors);
}

TEST(Formats, UnknownNamesAreListed) {
  try {
    format_from_name("nf5");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("\"nf5\""), std::string::npos);
    EXPECT_NE(text.find("nvfp4"), std::string::npos);
  }
  EXPECT_THROW(global_scale_rule_from_name("max"), Error);
  EXPECT_THROW(mx_scale_rule_from_name(""), Error);
}

TEST(Formats, SpecsAreValidated) {
  for (const std::int64_t block : {0, 32, 64, 512, 4096})
    EXPECT_EQ(error_of({.format = Format::nf4, .block_size = block, .double_quant = true}), "");
  for (const std::int64_t block : {32, 64, 128})
    EXPECT_EQ(error_of({.format = Format::int4, .block_size = block}), "");
  EXPECT_EQ(error_of({.format = Format::nvfp4, .block_size = 16, .four_six = true}), "");
  EXPECT_NE(error_of({.format = Format::nf4, .block_size = 48}), "");
  EXPECT_NE(error_of({.format = Format::nf4, .block_size = 16}), "");
  EXPECT_NE(error_of({.format = Format::nf4, .block_size = 8192}), "");
  EXPECT_NE(error_of({.format = Format::nf4, .block_size = -64}), "");
  EXPECT_EQ(error_of({.format = Format::nvfp4, .block_size = 32}), "nvfp4 has blocks of 16, not of 32");
  EXPECT_NE(error_of({.format = Format::mxfp8_e5m2, .block_size = 16}), "");
  EXPECT_NE(error_of({.format = Format::int4, .block_size = 256}), "");
  EXPECT_NE(error_of({.format = Format::int8, .block_size = 64}), "");
  EXPECT_NE(error_of({.format = Format::nvfp4, .double_quant = true}), "");
  EXPECT_EQ(error_of({.format = Format::nvfp4, .scale_search = true}), "");
  EXPECT_NE(error_of({.format = Format::nvfp4, .four_six = true, .scale_search = true}), "");
  EXPECT_NE(error_of({.format = Format::mxfp4, .scale_search = true}), "");
  EXPECT_NE(error_of({.format = Format::mxfp4, .four_six = true}), "");
  EXPECT_NE(error_of({.format = Format::nvfp4, .global_scale = GlobalScaleRule::modelopt, .four_six = true}),
            "");
  EXPECT_NE(error_of({.format = Format::mxfp8_e4m3, .mx_scale = MxScaleRule::modelopt}), "");
}

TEST(QuantizedTensor, SizesOfParts) {
  const PartSizes nf4 = part_sizes({.format = Format::nf4}, {7, 33});  // 231 elements
  EXPECT_EQ(nf4.codes, 116);
  EXPECT_EQ(nf4.scales, 4);
  const PartSizes doubled =
      part_sizes({.format = Format::nf4, .block_size = 32, .double_quant = true}, {300, 64});
  EXPECT_EQ(doubled.scales8, 600);
  EXPECT_EQ(doubled.nested_absmax, 3);
  EXPECT_EQ(doubled.scales, 0);
  const PartSizes nvfp4 = part_sizes({.format = Format::nvfp4}, {2, 3, 17});  // 6 rows of 17
  EXPECT_EQ(nvfp4.codes, 6 * 9);
  EXPECT_EQ(nvfp4.scales8, 6 * 2);
  const PartSizes mxfp8 = part_sizes({.format = Format::mxfp8_e5m2}, {3, 33});
  EXPECT_EQ(mxfp8.codes, 99);
  EXPECT_EQ(mxfp8.scales8, 6);
  EXPECT_EQ(part_sizes({.format = Format::int4}, {5, 65}).scales, 10);
  EXPECT_EQ(part_sizes({.format = Format::int8}, {5, 65}).scales, 5);
  EXPECT_EQ(part_sizes({.format = Format::bf16}, {5, 65}).codes, 650);
  EXPECT_EQ(part_sizes({.format = Format::nvfp4}, {}).codes, 1) << "a scalar is one row of one column";
  EXPECT_EQ(part_sizes({.format = Format::nvfp4}, {0, 64}).codes, 0);
  // 64-bit: 2^31 rows of 4096.
  EXPECT_EQ(part_sizes({.format = Format::nvfp4}, {std::int64_t{1} << 31, 4096}).codes,
            std::int64_t{1} << 42);
  EXPECT_THROW(part_sizes({.format = Format::nvfp4}, {std::int64_t{1} << 40, std::int64_t{1} << 40}), Error);
  EXPECT_THROW(part_sizes({.format = Format::nvfp4}, {-1, 4}), Error);
}

TEST(QuantizedTensor, BitsPerWeight) {
  EXPECT_NEAR(bits_per_weight({.format = Format::nvfp4}, {1024, 1024}), 4.5, 1e-4);
  EXPECT_DOUBLE_EQ(bits_per_weight({.format = Format::mxfp4}, {1024, 1024}), 4.25);
  EXPECT_DOUBLE_EQ(bits_per_weight({.format = Format::mxfp8_e4m3}, {1024, 1024}), 8.25);
  EXPECT_DOUBLE_EQ(bits_per_weight({.format = Format::nf4}, {1024, 1024}), 4.5);
  EXPECT_NEAR(bits_per_weight({.format = Format::nf4, .double_quant = true}, {1024, 1024}), 4.127, 1e-3);
  EXPECT_DOUBLE_EQ(bits_per_weight({.format = Format::bf16}, {3, 5}), 16.0);
  EXPECT_EQ(bits_per_weight({.format = Format::bf16}, {0, 5}), 0.0);
}

TEST(QuantizedTensor, PartsAreChecked) {
  QuantizedTensor tensor = make_quantized({.format = Format::nvfp4}, {4, 20}, DType::bf16);
  EXPECT_NO_THROW(check_parts(tensor, "w"));
  tensor.scales8 = Array<std::uint8_t>(4);
  try {
    check_parts(tensor, "model.w");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model.w: 8-bit scales holds 4 entries, expected 8"),
              std::string::npos)
        << error.what();
  }
}

float finite_float() {
  for (;;) {
    const float x = bits_float(*rc::gen::arbitrary<std::uint32_t>());
    if (is_finite(x)) return x;
  }
}

// No level lies nearer to x than the one chosen.
template <class Decode>
void expect_nearest(float x, std::uint32_t code, std::uint32_t codes, Decode decode) {
  const double chosen = std::abs(static_cast<double>(decode(code)) - static_cast<double>(x));
  for (std::uint32_t other = 0; other < codes; ++other) {
    const double level = decode(other);
    if (std::isfinite(level)) RC_ASSERT(chosen <= std::abs(level - static_cast<double>(x)));
  }
}

RC_GTEST_PROP(CodecProperties, EncodeIsNearestAndFiniteStaysFinite, ()) {
  const float x = finite_float();
  const std::uint8_t e4m3 = e4m3_encode(x), e5m2 = e5m2_encode(x), e2m1 = e2m1_encode(x);
  RC_ASSERT(is_finite(e4m3_decode(e4m3)));
  RC_ASSERT(is_finite(e5m2_decode(e5m2)));
  RC_ASSERT(e8m0_encode(x) != 255);
  expect_nearest(x, e2m1, 16, [](std::uint32_t c) { return e2m1_decode(static_cast<std::uint8_t>(c)); });
  expect_nearest(x, e4m3, 256, [](std::uint32_t c) { return e4m3_decode(static_cast<std::uint8_t>(c)); });
  expect_nearest(x, e5m2, 256, [](std::uint32_t c) { return e5m2_decode(static_cast<std::uint8_t>(c)); });
  RC_ASSERT(sign_bit(e4m3_decode(e4m3)) == sign_bit(x));
  RC_ASSERT(is_finite(bf16_decode(bf16_encode_saturating(x))));
  RC_ASSERT(is_finite(fp16_decode(fp16_encode_saturating(x))));
}

RC_GTEST_PROP(CodecProperties, TableCodecsAreNearestInUnitRange, ()) {
  const float x = static_cast<float>(*rc::gen::inRange(-1000000, 1000001)) / 1000000.0f;
  // A float32 midpoint may lie half a step beside the true one.
  auto distance = [&](float level) { return std::abs(static_cast<double>(level) - static_cast<double>(x)); };
  for (std::uint8_t code = 0; code < 16; ++code) {
    RC_ASSERT(distance(nf4_decode(nf4_encode(x))) <= distance(nf4_decode(code)) + 1.2e-7);
    RC_ASSERT(distance(fp4_decode(fp4_encode(x))) <= distance(fp4_decode(code)) + 1.2e-7);
  }
}

RC_GTEST_PROP(CodecProperties, BlockScalesKeepTheLargestValueInReach, ()) {
  const float absmax =
      bits_float(*rc::gen::inRange<std::uint32_t>(0x30000000u, 0x50000000u));  // 4.7e-10 to 8.6e9
  for (const auto rule : {GlobalScaleRule::pow2, GlobalScaleRule::amax}) {
    const float global = nvfp4_global_scale(rule, absmax, DType::f32);
    const float step = nvfp4_step(rule, nvfp4_encode_scale(rule, absmax, global, DType::f32), global);
    RC_ASSERT(nvfp4_encode(rule, absmax, step) == 7);
    RC_ASSERT(std::abs(nvfp4_decode(7, step) / absmax - 1.0f) <= 0.0626f);  // half a step of E4M3
  }
  const float scale = e8m0_decode(mx_encode_scale(MxScaleRule::floor, kMxE2m1, absmax, DType::f32));
  RC_ASSERT(absmax / scale >= 4.0f);
  RC_ASSERT(absmax / scale < 8.0f);
}

}  // namespace
}  // namespace halfbyte
