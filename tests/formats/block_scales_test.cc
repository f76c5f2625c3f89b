// Scales of NVFP4, MXFP4 and MXFP8 blocks against compressed-tensors, ModelOpt and torchao, codec by codec;
// the whole tensors are compared in tests/ops/quantize_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "formats/int4.h"
#include "formats/int8.h"
#include "formats/mxfp4.h"
#include "formats/mxfp8.h"
#include "formats/nvfp4.h"
#include "formats/packing.h"
#include "tests/support/golden.h"

namespace halfbyte {
namespace {

using test::Golden;
using test::patterns;

float largest(const float* x, std::int64_t count) {
  float absmax = 0;
  for (std::int64_t i = 0; i < count; ++i) absmax = std::max(absmax, std::abs(x[i]));
  return absmax;
}

std::vector<std::uint8_t> pack_low(const std::vector<std::uint8_t>& codes) {
  std::vector<std::uint8_t> bytes(codes.size() / 2);
  pack_nibbles(NibbleOrder::low_first, codes.data(), static_cast<std::int64_t>(codes.size()), bytes.data());
  return bytes;
}

TEST(Nvfp4Global, CompressedTensorsLiterals) {
  const Golden golden("nvfp4.safetensors");
  const std::pair<const char*, float> cases[] = {{"0", 0.0f},
                                                 {"nan", std::numeric_limits<float>::quiet_NaN()},
                                                 {"inf", std::numeric_limits<float>::infinity()},
                                                 {"1e-40", 1e-40f},
                                                 {"1e-36", 1e-36f},
                                                 {"3e+38", 3e38f}};
  for (const auto& [name, amax] : cases)
    EXPECT_EQ(nvfp4_global_scale(GlobalScaleRule::compressed_tensors, amax, DType::f32),
              golden.floats(std::string("ct.gparam.") + name)[0])
        << name;
}

TEST(Nvfp4Global, Pow2IsTheNextPowerOfTwo) {
  for (const float amax : {1e-20f, 1e-12f, 0.7f, 1.3f, 2688.0f, 2688.01f, 3e38f}) {
    const float exact = std::max(amax, 1e-12f) / 2688.0f;
    const float factor = nvfp4_global_scale(GlobalScaleRule::pow2, amax, DType::f32);
    int exponent = 0;
    EXPECT_EQ(std::frexp(factor, &exponent), 0.5f) << amax;
    EXPECT_GE(factor, exact) << amax;
    EXPECT_LT(factor / 2, exact) << amax;
    EXPECT_EQ(1.0f / (1.0f / factor), factor) << "the same number as divisor and as factor";
  }
  EXPECT_EQ(nvfp4_global_scale(GlobalScaleRule::amax, 0.0f, DType::f32), 1e-12f / 2688.0f);
}

TEST(Nvfp4Global, Pow2ValuesAreExactInBf16) {
  const float global = nvfp4_global_scale(GlobalScaleRule::pow2, 3.7f, DType::f32);
  for (std::uint32_t scale = 1; scale <= 0x7E; ++scale)
    for (std::uint8_t code = 0; code < 16; ++code) {
      const float value =
          nvfp4_decode(code, nvfp4_step(GlobalScaleRule::pow2, static_cast<std::uint8_t>(scale), global));
      ASSERT_EQ(round_to_bf16(value), value) << scale << " " << int{code};
    }
}

TEST(Nvfp4Scale, ZeroAndSaturation) {
  const DType f32 = DType::f32;
  EXPECT_EQ(nvfp4_encode_scale(GlobalScaleRule::pow2, 0.0f, 1.0f, f32), 0x01);
  EXPECT_EQ(nvfp4_encode_scale(GlobalScaleRule::amax, 0.0f, 1.0f, f32), 0x01);
  EXPECT_EQ(nvfp4_encode_scale(GlobalScaleRule::compressed_tensors, 0.0f, 1.0f, f32), 0x20);
  EXPECT_EQ(nvfp4_encode_scale(GlobalScaleRule::modelopt, 0.0f, 1.0f, f32), 0x38);
  for (const auto rule : {GlobalScaleRule::pow2, GlobalScaleRule::amax, GlobalScaleRule::modelopt})
    EXPECT_EQ(nvfp4_encode_scale(rule, 1e6f, 1.0f, f32), 0x7E);
  EXPECT_EQ(nvfp4_encode_scale(GlobalScaleRule::modelopt, 1e-9f, 1.0f, f32), 0x01);
  // A tensor of subnormal numbers under modelopt has the global scale 0: all its codes are 0, none is NaN.
  EXPECT_EQ(nvfp4_encode_scale(GlobalScaleRule::modelopt, 1e-44f, 0.0f, f32), 0x7E);
  EXPECT_EQ(nvfp4_encode(GlobalScaleRule::modelopt, 1e-44f, 0.0f), 0);
}

TEST(Nvfp4Scale, FourSixTakesTheSmallerError) {
  // With 4 as the largest level the block 4 3 2 1 is exact; with 6 it is not.
  const float x[16] = {4, 3, 2, 1, -4, -3, -2, -1, 0, 0.5, 1.5, -0.5, -1.5, 4, 3, 2};
  const auto rule = GlobalScaleRule::amax;
  EXPECT_EQ(nvfp4_encode_scale(rule, 4.0f, 1.0f, DType::f32, 4.0f), 0x38);
  EXPECT_EQ(nvfp4_encode_scale_four_six(rule, x, 16, 4.0f, 1.0f, DType::f32), 0x38);
  EXPECT_EQ(nvfp4_block_error(rule, x, 16, 1.0f), 0.0f);
  const float y[16] = {6, 6, 0.5, -6};
  EXPECT_EQ(nvfp4_encode_scale_four_six(rule, y, 16, 6.0f, 1.0f, DType::f32), 0x38) << "6 is exact here";
  const float zero[16] = {};
  EXPECT_EQ(nvfp4_encode_scale_four_six(rule, zero, 16, 0.0f, 1.0f, DType::f32), 0x01) << "a tie keeps 6";
}

TEST(Nvfp4Scale, SearchTakesTheLeastError) {
  const auto rule = GlobalScaleRule::amax;
  // Exact under the scale 1 (0x38), five codes above that of 4 / 6.
  const float x[16] = {4, 3, 2, 1, -4, -3, -2, -1, 0, 0.5, 1.5, -0.5, -1.5, 4, 3, 2};
  EXPECT_EQ(nvfp4_encode_scale_search(rule, x, 16, 4.0f, 1.0f, DType::f32), 0x38);
  // One outlier among many values that a smaller scale serves better: saturating it costs less than it gains.
  const float y[16] = {6,    0.4f, 0.4f, 0.4f, 0.4f, 0.4f, 0.4f, 0.4f,
                       0.4f, 0.4f, 0.4f, 0.4f, 0.4f, 0.4f, 0.4f, 0.4f};
  const std::uint8_t code = nvfp4_encode_scale_search(rule, y, 16, 6.0f, 1.0f, DType::f32);
  for (const int offset : {0, -2, -1, 1, 2, 3, 4, 5, 6})
    EXPECT_LE(nvfp4_block_error(rule, y, 16, nvfp4_step(rule, code, 1.0f)),
              nvfp4_block_error(rule, y, 16, nvfp4_step(rule, nvfp4_near_scale(0x38, offset), 1.0f)));
  const float zero[16] = {};
  EXPECT_EQ(nvfp4_encode_scale_search(rule, zero, 16, 0.0f, 1.0f, DType::f32), 0x01)
      << "a tie keeps the first";
  EXPECT_EQ(nvfp4_near_scale(0x7D, 6), 0x7E);
  EXPECT_EQ(nvfp4_near_scale(2, -2), 1);
}

TEST(Nvfp4Scale, TorchaoBytesFromOurCasts) {
  const Golden golden("nvfp4.safetensors");
  for (const std::string dtype : {"f32", "bf16"}) {
    const auto w = golden.floats(dtype + ".w");
    const auto elements = static_cast<std::int64_t>(w.size());
    const float pts = largest(w.data(), elements) / 2688.0f;
    EXPECT_EQ(pts, golden.floats(dtype + ".torchao.per_tensor_scale")[0]);
    for (const bool two_levels : {true, false}) {
      std::vector<std::uint8_t> scales, codes;
      for (std::int64_t i = 0; i < elements; i += 16) {
        const float sixth = largest(w.data() + i, 16) / 6.0f;
        const float scale = std::clamp(two_levels ? sixth / pts : sixth, pow2f(-6), 448.0f);
        scales.push_back(e4m3_encode(scale));
        const float factor = (two_levels ? 1.0f / pts : 1.0f) / e4m3_decode(scales.back());
        for (std::int64_t j = i; j < i + 16; ++j)
          codes.push_back(e2m1_encode(w[static_cast<std::size_t>(j)] * factor));
      }
      const std::string prefix = dtype + (two_levels ? ".torchao." : ".torchao_1level.");
      EXPECT_EQ(scales, golden.bytes(prefix + "scale")) << prefix;
      EXPECT_EQ(pack_low(codes), golden.bytes(prefix + "packed")) << prefix;
    }
  }
}

TEST(MxScale, TorchaoModes) {
  const Golden golden("mx.safetensors");
  const std::pair<const char*, MxScaleRule> modes[] = {{"floor", MxScaleRule::floor},
                                                       {"rceil", MxScaleRule::rceil},
                                                       {"ceil", MxScaleRule::ceil},
                                                       {"even", MxScaleRule::even}};
  for (const std::string dtype : {"f32", "bf16"})
    for (const auto& [mode, rule] : modes)
      for (const bool four_bits : {true, false}) {
        const std::string prefix = dtype + ".torchao." + mode + (four_bits ? ".mxfp4" : ".mxfp8");
        const auto w = golden.floats(dtype + ".w");
        std::vector<std::uint8_t> scales, codes;
        for (std::size_t i = 0; i < w.size(); i += 32) {
          const std::uint8_t code =
              mx_encode_scale(rule, four_bits ? kMxE2m1 : kMxE4m3, largest(w.data() + i, 32), DType::f32);
          scales.push_back(code);
          // For code 0 torchao divides by 2^-126 (rceil: 1) instead of the 2^-127 that the code stands for.
          const float scale = code ? e8m0_decode(code) : rule == MxScaleRule::rceil ? 1.0f : pow2f(-126);
          for (std::size_t j = i; j < i + 32; ++j)
            codes.push_back(four_bits ? mxfp4_encode(rule, w[j], scale, DType::f32)
                                      : mxfp8_e4m3_encode(rule, w[j], scale, DType::f32));
        }
        EXPECT_EQ(scales, golden.bytes(prefix + ".scale")) << prefix;
        EXPECT_EQ(four_bits ? pack_low(codes) : codes, golden.bytes(prefix + ".data")) << prefix;
      }
}

TEST(MxScale, NoRuleGivesTheNanCode) {
  for (const float absmax : {0.0f, pow2f(-149), pow2f(-127), pow2f(-126), 1.0f, 1.75f, 6.0f, 7.0f, 448.0f,
                             3e38f, std::numeric_limits<float>::max()})
    for (int rule = 0; rule < 6; ++rule)
      for (const MxElement element : {kMxE2m1, kMxE4m3, kMxE5m2})
        for (const DType source : {DType::f32, DType::bf16, DType::f16}) {
          const std::uint8_t code = mx_encode_scale(static_cast<MxScaleRule>(rule), element, absmax, source);
          EXPECT_LT(code, 255) << rule << " " << absmax;
          const bool one =
              source == DType::f16 && static_cast<MxScaleRule>(rule) == MxScaleRule::compressed_tensors;
          if (absmax == 0.0f) {
            EXPECT_EQ(code, one ? 127 : 0);
          }
        }
}

TEST(MxScale, RulesAtTheirBoundaries) {
  const float below_two = std::nextafter(2.0f, 0.0f), above_one = std::nextafter(1.0f, 2.0f);
  auto scale = [](MxScaleRule rule, MxElement element, float absmax) {
    return int{mx_encode_scale(rule, element, absmax, DType::f32)} - 127;
  };
  EXPECT_EQ(scale(MxScaleRule::floor, kMxE2m1, below_two), -2);
  EXPECT_EQ(scale(MxScaleRule::floor, kMxE2m1, 2.0f), -1);
  EXPECT_EQ(scale(MxScaleRule::floor, kMxE5m2, 2.0f), -14);
  EXPECT_EQ(scale(MxScaleRule::ceil, kMxE2m1, 1.0f), -2);
  EXPECT_EQ(scale(MxScaleRule::ceil, kMxE2m1, above_one), -1);
  EXPECT_EQ(scale(MxScaleRule::rceil, kMxE2m1, 6.0f), 0);
  EXPECT_EQ(scale(MxScaleRule::rceil, kMxE2m1, 6.1f), 1);
  EXPECT_EQ(scale(MxScaleRule::even, kMxE2m1, 1.75f), -1);
  EXPECT_EQ(scale(MxScaleRule::even, kMxE2m1, std::nextafter(1.75f, 0.0f)), -2);
  EXPECT_EQ(scale(MxScaleRule::even, kMxE4m3, std::nextafter(1.9375f, 0.0f)), -8);
  EXPECT_EQ(scale(MxScaleRule::even, kMxE4m3, 1.9375f), -7);
  EXPECT_EQ(scale(MxScaleRule::compressed_tensors, kMxE4m3, 1.75f), -7);
  EXPECT_EQ(scale(MxScaleRule::modelopt, kMxE2m1, 6.0f), 0);
  EXPECT_EQ(scale(MxScaleRule::modelopt, kMxE2m1, 6.1f), 1);
}

TEST(Integers, ScalesTiesAndClamps) {
  EXPECT_EQ(int4_scale(0.0f), 1e-12f / 7.0f);
  EXPECT_EQ(int8_scale(127.0f), 1.0f);
  for (int level = -8; level < 8; ++level) {
    const auto x = static_cast<float>(level);
    EXPECT_EQ(int4_level(int4_encode(x, 1.0f)), level);
    // Half way up: to the even neighbour.
    if (level < 7) {
      EXPECT_EQ(int4_level(int4_encode(x + 0.5f, 1.0f)), level % 2 ? level + 1 : level);
    }
  }
  for (int level = -127; level < 127; ++level) {
    const auto x = static_cast<float>(level);
    EXPECT_EQ(int8_level(int8_encode(x, 1.0f)), level);
    EXPECT_EQ(int8_level(int8_encode(x + 0.5f, 1.0f)), level % 2 ? level + 1 : level);
  }
  EXPECT_EQ(int4_level(int4_encode(-1e9f, 1.0f)), -8);
  EXPECT_EQ(int8_level(int8_encode(-1e9f, 1.0f)), -127);
  EXPECT_EQ(int8_level(128), -128);
  EXPECT_EQ(float_bits(int8_decode(int8_encode(-0.2f, 1.0f), 1.0f)), 0u) << "integers have no negative zero";
}

}  // namespace
}  // namespace halfbyte
