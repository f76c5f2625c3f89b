// NF4, FP4 and double quantization against bitsandbytes' tables and codes, and every threshold from both
// sides.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "formats/bnb_block.h"
#include "formats/dynamic8.h"
#include "formats/fp4.h"
#include "formats/nf4.h"
#include "formats/packing.h"
#include "io/sha256.h"
#include "tests/support/golden.h"

namespace halfbyte {
namespace {

using test::Golden;
using test::patterns;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Bnb, TablesAreThePeers) {
  const Golden golden("bnb_quant.safetensors");
  std::vector<float> nf4, fp4;
  for (std::uint8_t code = 0; code < 16; ++code) {
    nf4.push_back(nf4_decode(code));
    fp4.push_back(fp4_decode(code));
  }
  EXPECT_EQ(patterns(nf4), patterns(golden.floats("map.nf4")));
  EXPECT_EQ(patterns(fp4), patterns(golden.floats("map.fp4")));
  const std::vector<float> map(kDynamic8Map.begin(), kDynamic8Map.end());
  EXPECT_EQ(patterns(map), patterns(golden.floats("map.dynamic")));
  EXPECT_EQ(sha256(std::as_bytes(std::span(map))),
            "e732639a65f497b4ad684bb166a4467708255edd5207757de8b8f0c7e1fda89c");
}

TEST(Bnb, BothSidesOfEveryThreshold) {
  for (int i = 0; i < 15; ++i) {
    const float t = nf4_threshold(i);
    EXPECT_EQ(nf4_encode(t), i) << "a tie stays at the lower code";
    EXPECT_EQ(nf4_encode(std::nextafter(t, 2.0f)), i + 1);
    EXPECT_EQ(nf4_encode(std::nextafter(t, -2.0f)), i);
    const float u = fp4_threshold(i);
    EXPECT_EQ(fp4_encode(u), fp4_code_at(i));
    EXPECT_EQ(fp4_encode(std::nextafter(u, 2.0f)), fp4_code_at(i + 1));
    EXPECT_EQ(fp4_encode(std::nextafter(u, -2.0f)), fp4_code_at(i));
  }
  EXPECT_EQ(nf4_encode(kNan), 15);
  EXPECT_EQ(fp4_encode(kNan), 3);
  EXPECT_EQ(nf4_encode(-0.0f), 7);
  EXPECT_EQ(fp4_encode(-0.0f), 0);
}

TEST(Bnb, CodesComeBackAndUpperBitsAreIgnored) {
  for (std::uint8_t code = 0; code < 16; ++code) {
    EXPECT_EQ(nf4_encode(nf4_decode(code)), code);
    EXPECT_EQ(fp4_encode(fp4_decode(code)), code == 8 ? 0 : code) << "the levels of 0 and 8 are equal";
    EXPECT_EQ(nf4_decode(static_cast<std::uint8_t>(code | 0xA0)), nf4_decode(code));
    EXPECT_EQ(fp4_decode(static_cast<std::uint8_t>(code | 0x50)), fp4_decode(code));
  }
}

TEST(Bnb, FullAndShortBlocksScaleDifferently) {
  const BnbScale full = bnb_scale(3.0f, true), last = bnb_scale(3.0f, false);
  EXPECT_EQ(bnb_normalise(full, 1.0f), 1.0f * (1.0f / 3.0f));
  EXPECT_EQ(bnb_normalise(last, 2.9f), 2.9f / 3.0f);
  EXPECT_EQ(bnb_normalise(full, -4.0f), -1.0f) << "clamped";
  EXPECT_EQ(bnb_scale(0.0f, true).stored, 0.0f);
  EXPECT_EQ(bnb_scale(0.0f, false).stored, 1e-38f);
  EXPECT_EQ(nf4_encode(bnb_normalise(bnb_scale(1e-40f, true), 1e-40f)), 7) << "subnormal blocks become zeros";
}

TEST(Bnb, Dynamic8CodesAreThePeers) {
  const Golden golden("bnb_quant.safetensors");
  const auto x = golden.floats("q8.x"), absmax = golden.floats("q8.absmax");
  const auto codes = golden.bytes("q8.codes");
  std::vector<float> decoded;
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(dynamic8_encode_scaled(x[i], dynamic8_factor(absmax[i / 256])), codes[i]) << i << ": " << x[i];
    decoded.push_back(dynamic8_decode(kDynamic8Map[codes[i]], absmax[i / 256], 0.0f) + 0.0f);
  }
  std::vector<float> peer = golden.floats("q8.deq");
  for (float& value : peer) value += 0.0f;  // adding the offset 0 turns -0 into 0
  EXPECT_EQ(patterns(decoded), patterns(peer));
}

TEST(Bnb, Dynamic8IsTotal) {
  EXPECT_EQ(dynamic8_encode(0.0f), 131);
  EXPECT_EQ(dynamic8_factor(0.0f), 0.0f);
  EXPECT_EQ(dynamic8_factor(pow2f(-128)), 0.0f) << "the reciprocal would be infinite";
  EXPECT_TRUE(is_finite(dynamic8_factor(std::nextafter(pow2f(-128), 1.0f))));
  std::uint8_t before = 0;
  for (int j = 0; j <= 65535; ++j) {
    const std::uint8_t code = dynamic8_encode(-1.0f + 2.0f * static_cast<float>(j) / 65535.0f);
    ASSERT_GE(code, before) << j;
    before = code;
  }
  EXPECT_EQ(before, 255);
}

TEST(Packing, OrdersAndOddCounts) {
  const std::uint8_t codes[5] = {1, 2, 3, 4, 5};
  std::uint8_t bytes[3];
  pack_nibbles(NibbleOrder::low_first, codes, 5, bytes, 9);
  EXPECT_EQ(bytes[0], 0x21);
  EXPECT_EQ(bytes[2], 0x95);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(nibble(NibbleOrder::low_first, bytes, i), codes[i]);
  pack_nibbles(NibbleOrder::high_first, codes, 5, bytes, 7);
  EXPECT_EQ(bytes[0], 0x12);
  EXPECT_EQ(bytes[2], 0x57);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(nibble(NibbleOrder::high_first, bytes, i), codes[i]);
  EXPECT_EQ(packed_bytes(5), 3);
  EXPECT_EQ(packed_bytes((std::int64_t{1} << 62) + 1), (std::int64_t{1} << 61) + 1);
}

}  // namespace
}  // namespace halfbyte
