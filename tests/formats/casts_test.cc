// Scalar casts: every BF16 pattern against the peers' bytes and digests, every code decoded, and both sides
// of every rounding boundary.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "formats/e2m1.h"
#include "formats/e5m2.h"
#include "formats/e8m0.h"
#include "io/sha256.h"
#include "tests/support/golden.h"

namespace halfbyte {
namespace {

using test::Golden;
using test::patterns;
using Bytes = std::vector<std::uint8_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One result for each of the 65,536 BF16 patterns in order.
template <class Cast>
Bytes all_bf16(Cast cast) {
  Bytes out;
  for (std::uint32_t code = 0; code < 65536; ++code)
    out.push_back(cast(bf16_decode(static_cast<std::uint16_t>(code))));
  return out;
}

TEST(Casts, E2m1OfAllBf16) {
  const Bytes ours = all_bf16(e2m1_encode);
  EXPECT_EQ(sha256(std::as_bytes(std::span(ours))),
            "8692da74cf3cf29ca68d089fddad64b688c3323bf21671f2eed3283906fc046f")
      << "CUDA 13.0";
  // ml_dtypes makes a NaN the zero of the other sign.
  const Bytes peer = all_bf16(
      [](float x) { return is_nan(x) ? static_cast<std::uint8_t>(sign_bit(x) ? 0 : 8) : e2m1_encode(x); });
  EXPECT_EQ(sha256(std::as_bytes(std::span(peer))),
            "e6c3b75330483770fdfc694be5b28fbe504cefa84954b599b89f39aa6d146d11")
      << "ml_dtypes";
  Bytes packed;
  for (std::size_t i = 0; i < peer.size(); i += 2)
    packed.push_back(static_cast<std::uint8_t>(peer[i] | peer[i + 1] << 4));
  EXPECT_EQ(packed, Golden("casts.safetensors").bytes("ml.bf16_to_e2m1_packed"));
}

TEST(Casts, E4m3OfAllBf16) {
  const Bytes ours = all_bf16(e4m3_encode);
  EXPECT_EQ(sha256(std::as_bytes(std::span(ours))),
            "556222ae80c3498b4da64795f283e77962f1045e2525faaededd4e0a5b1ae212")
      << "torch";
  const Bytes cuda = all_bf16([](float x) { return is_nan(x) ? std::uint8_t{0x7F} : e4m3_encode(x); });
  EXPECT_EQ(sha256(std::as_bytes(std::span(cuda))),
            "2f8096b3b00699a86e3e44c61fc0287c5111ab4b4e3d1ad604f6f3a5b3eca0db")
      << "CUDA SATFINITE";
  const Bytes peer = all_bf16([](float x) {
    return abs_value(x) > 464.0f ? static_cast<std::uint8_t>(sign_bit(x) ? 0xFF : 0x7F) : e4m3_encode(x);
  });
  EXPECT_EQ(peer, Golden("casts.safetensors").bytes("ml.bf16_to_e4m3")) << "ml_dtypes does not saturate";
}

TEST(Casts, E8m0OfAllBf16) {
  const float too_large = 1.5f * pow2f(127);
  const Bytes torch =
      all_bf16([&](float x) { return abs_value(x) >= too_large ? std::uint8_t{255} : e8m0_encode(x); });
  EXPECT_EQ(sha256(std::as_bytes(std::span(torch))),
            "c7ce8810bf43d855d2b1406983662490000a041d34bef2c5e73b13e786852bcf");
  const Bytes ml =
      all_bf16([&](float x) { return !(x > 0.0f && x < too_large) ? std::uint8_t{255} : e8m0_encode(x); });
  EXPECT_EQ(ml, Golden("casts.safetensors").bytes("ml.bf16_to_e8m0"));
  const Bytes up = all_bf16([](float x) { return e8m0_encode(x, E8m0Rounding::up); });
  EXPECT_EQ(sha256(std::as_bytes(std::span(up))),
            "071ed5f46e6976a02043999be450aaf7d61df87a614a5d044da28f8beccd4f75")
      << "CUDA, up";
  const Bytes down = all_bf16([](float x) { return e8m0_encode(x, E8m0Rounding::down); });
  EXPECT_EQ(sha256(std::as_bytes(std::span(down))),
            "31275856a8aaec046128782f1894916017c3d3f80d214cd2e74168e138f872f4")
      << "CUDA, down";
}

TEST(Casts, SampleOfBoundariesMatchesPeers) {
  const Golden golden("casts.safetensors");
  const auto x = golden.floats("sample.x");
  Bytes e2m1, e4m3, e4m3_ml;
  for (const float v : x) {
    e2m1.push_back(e2m1_encode(v));
    e4m3.push_back(e4m3_encode(v));
    e4m3_ml.push_back(abs_value(v) > 464.0f ? static_cast<std::uint8_t>(sign_bit(v) ? 0xFF : 0x7F)
                                            : e4m3_encode(v));
  }
  EXPECT_EQ(e2m1, golden.bytes("sample.ml_e2m1"));
  EXPECT_EQ(e4m3, golden.bytes("sample.torch_e4m3"));
  EXPECT_EQ(e4m3_ml, golden.bytes("sample.ml_e4m3"));
}

TEST(Casts, EveryCodeDecodes) {
  const Golden golden("casts.safetensors");
  std::vector<float> e4m3, e8m0, e2m1;
  for (std::uint32_t code = 0; code < 256; ++code) {
    e4m3.push_back(e4m3_decode(static_cast<std::uint8_t>(code)));
    e8m0.push_back(e8m0_decode(static_cast<std::uint8_t>(code)));
    if (code < 16) e2m1.push_back(e2m1_decode(static_cast<std::uint8_t>(code)));
  }
  EXPECT_EQ(patterns(e4m3), patterns(golden.floats("ml.e4m3_to_f32")));
  EXPECT_EQ(patterns(e8m0), patterns(golden.floats("ml.e8m0_to_f32")));
  EXPECT_EQ(patterns(e2m1), patterns(golden.floats("ml.e2m1_to_f32")));
}

// A binary float with that many exponent and mantissa bits, by the formula of its definition.
double formula(std::uint32_t code, int exponent_bits, int mantissa_bits, int bias) {
  const int exponent = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = static_cast<double>(code & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
  const double magnitude =
      exponent ? std::ldexp(1 + mantissa, exponent - bias) : std::ldexp(mantissa, 1 - bias);
  return code >> (exponent_bits + mantissa_bits) & 1 ? -magnitude : magnitude;
}

TEST(Casts, DecodeFollowsTheFormula) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7F) < 0x7F) {
      EXPECT_EQ(e4m3_decode(static_cast<std::uint8_t>(code)), formula(code, 4, 3, 7)) << code;
    }
    if ((code & 0x7F) < 0x7C) {
      EXPECT_EQ(e5m2_decode(static_cast<std::uint8_t>(code)), formula(code, 5, 2, 15)) << code;
    }
  }
  for (std::uint32_t code = 0; code < 65536; ++code) {
    if ((code & 0x7FFF) >= 0x7C00) continue;
    ASSERT_EQ(fp16_decode(static_cast<std::uint16_t>(code)), formula(code, 5, 10, 15)) << code;
    ASSERT_EQ(sign_bit(fp16_decode(static_cast<std::uint16_t>(code))), code >> 15) << code;
  }
}

TEST(Casts, CodesComeBack) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto c = static_cast<std::uint8_t>(code);
    if ((c & 0x7F) != 0x7F) {
      EXPECT_EQ(e4m3_encode(e4m3_decode(c)), c);
    }
    if ((c & 0x7F) <= 0x7C) {
      EXPECT_EQ(e5m2_encode(e5m2_decode(c)), c);
    }
    for (const auto rounding : {E8m0Rounding::nearest, E8m0Rounding::up, E8m0Rounding::down})
      EXPECT_EQ(e8m0_encode(e8m0_decode(c), rounding), c);
  }
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const auto c = static_cast<std::uint16_t>(code);
    const bool fp16_nan = (c & 0x7FFF) > 0x7C00, bf16_nan = (c & 0x7FFF) > 0x7F80;
    ASSERT_EQ(fp16_encode(fp16_decode(c)), fp16_nan ? (c & 0x8000) | 0x7E00 : c);
    ASSERT_EQ(bf16_encode(bf16_decode(c)), bf16_nan ? (c & 0x8000) | 0x7FC0 : c);
  }
}

// At the middle between neighbouring codes the even one wins; one float32 step off, the nearer one.
template <class Encode, class Decode>
void check_boundaries(std::uint32_t codes, Encode encode, Decode decode) {
  for (std::uint32_t code = 0; code + 1 < codes; ++code) {
    const double low = decode(code), high = decode(code + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2) << "midpoints are float32 numbers";
    const std::uint32_t even = code % 2 ? code + 1 : code;
    ASSERT_EQ(encode(middle), even) << code;
    ASSERT_EQ(encode(std::nextafter(middle, 0.0f)), code) << code;
    ASSERT_EQ(encode(std::nextafter(middle, kInf)), code + 1) << code;
  }
}

TEST(Casts, BothSidesOfEveryBoundary) {
  check_boundaries(
      8, [](float x) { return e2m1_encode(x); },
      [](std::uint32_t c) { return double{e2m1_decode(static_cast<std::uint8_t>(c))}; });
  check_boundaries(
      0x7F, [](float x) { return e4m3_encode(x); },
      [](std::uint32_t c) { return double{e4m3_decode(static_cast<std::uint8_t>(c))}; });
  check_boundaries(
      0x7C, [](float x) { return e5m2_encode(x); },
      [](std::uint32_t c) { return double{e5m2_decode(static_cast<std::uint8_t>(c))}; });
  check_boundaries(
      0x7C00, [](float x) { return fp16_encode(x); },
      [](std::uint32_t c) { return double{fp16_decode(static_cast<std::uint16_t>(c))}; });
  check_boundaries(
      0x7F80, [](float x) { return bf16_encode(x); },
      [](std::uint32_t c) { return double{bf16_decode(static_cast<std::uint16_t>(c))}; });
}

TEST(Casts, SaturationInfinityNanAndNegativeZero) {
  EXPECT_EQ(e2m1_encode(1e30f), 7);
  EXPECT_EQ(e2m1_encode(-kInf), 15);
  EXPECT_EQ(e2m1_encode(kNan), 7);
  EXPECT_EQ(e2m1_encode(-kNan), 7);
  EXPECT_EQ(e2m1_encode(-0.0f), 8);
  EXPECT_EQ(e2m1_encode_unsigned_zero(-0.0f), 0);
  EXPECT_EQ(e2m1_encode_unsigned_zero(-0.1f), 8);
  EXPECT_EQ(e4m3_encode(kInf), 0x7E);
  EXPECT_EQ(e4m3_encode(-465.0f), 0xFE);
  EXPECT_EQ(e4m3_encode(kNan), 0x7F);
  EXPECT_EQ(e4m3_encode(-0.0f), 0x80);
  EXPECT_EQ(e5m2_encode(3e38f), 0x7B);
  EXPECT_EQ(e5m2_encode(-kInf), 0xFC);
  EXPECT_EQ(e5m2_encode(kNan), 0x7F);
  EXPECT_EQ(e5m2_encode(-0.0f), 0x80);
  EXPECT_EQ(e8m0_encode(kInf), 254);
  EXPECT_EQ(e8m0_encode(kNan), 255);
  EXPECT_EQ(e8m0_encode(0.0f), 0);
  EXPECT_EQ(e8m0_encode(-4.0f), 129);
  EXPECT_EQ(fp16_encode(kInf), 0x7C00);
  EXPECT_EQ(fp16_encode_saturating(-kInf), 0xFC00);
  EXPECT_EQ(fp16_encode_saturating(1e9f), 0x7BFF);
  EXPECT_EQ(fp16_encode(-kNan) & 0x7FFF, 0x7E00);
  EXPECT_EQ(bf16_encode_saturating(std::numeric_limits<float>::max()), 0x7F7F);
  EXPECT_EQ(bf16_encode(std::numeric_limits<float>::denorm_min()), 0);
}

}  // namespace
}  // namespace halfbyte
