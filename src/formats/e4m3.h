// E4M3   8-bit float of OCP FP8 and OCP MX ("fn"): sign, 4 exponent bits (bias 7), 3 mantissa bits
//        range   largest 448 = 0x7E, smallest normal 2^-6, subnormal step 2^-9; no Inf; NaN 0x7F and 0xFF
//        encode  nearest even, saturating: everything above 448, Inf too, becomes 448 with its sign, so only
//                a NaN gives a NaN code (0x7F, sign kept); -0 becomes 0x80; magnitudes up to 2^-10 become
//                zero with their sign
//        source  OCP 8-bit Floating Point Specification 1.0; equal to torch 2.15's cast on all BF16 patterns
#pragma once

#include "formats/hd.h"

namespace halfbyte {

inline constexpr float kE4m3Max = 448.0f;

HB_HD constexpr std::uint8_t e4m3_encode(float x) {
  const std::uint32_t bits = float_bits(x), magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t sign = bits >> 24 & 0x80u;
  if (magnitude > kInfBits) return static_cast<std::uint8_t>(sign | 0x7Fu);
  if (magnitude >= float_bits(kE4m3Max)) return static_cast<std::uint8_t>(sign | 0x7Eu);
  if (magnitude < float_bits(pow2f(-6))) {  // at 2^14 a float32 step is 2^-9
    const std::uint32_t steps = float_bits(add_rn(bits_float(magnitude), 16384.0f)) - float_bits(16384.0f);
    return static_cast<std::uint8_t>(sign | steps);
  }
  const std::uint32_t rounded =
      magnitude + 0x7FFFFu + (magnitude >> 20 & 1u) - (120u << 23);  // bias 127 becomes 7
  return static_cast<std::uint8_t>(sign | rounded >> 20);
}

HB_HD constexpr float e4m3_decode(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7Fu;
  if (magnitude == 0x7Fu) return bits_float(sign | 0x7FC00000u);
  if (magnitude < 8u) {
    const float value = static_cast<float>(magnitude) * pow2f(-9);
    return sign ? -value : value;
  }
  return bits_float(sign | ((magnitude << 20) + (120u << 23)));
}

static_assert(e4m3_encode(448.0f) == 0x7E && e4m3_encode(-1e30f) == 0xFE && e4m3_decode(0x7E) == 448.0f);
static_assert(e4m3_encode(1.0f) == 0x38 && e4m3_encode(1.0625f) == 0x38 && e4m3_encode(1.1875f) == 0x3A);
static_assert(e4m3_encode(pow2f(-10)) == 0 && e4m3_encode(3 * pow2f(-10)) == 2 &&
              e4m3_decode(8) == pow2f(-6));

}  // namespace halfbyte
