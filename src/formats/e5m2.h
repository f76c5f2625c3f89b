// E5M2   8-bit float of OCP FP8 and OCP MX: sign, 5 exponent bits (bias 15), 2 mantissa bits; the upper half
//        of an FP16
//        range   largest 57344 = 0x7B, smallest normal 2^-14, subnormal step 2^-16; Inf 0x7C; NaN 0x7D..0x7F
//        encode  nearest even; a finite magnitude above 57344 becomes 57344 (saturation), Inf stays Inf, NaN
//                becomes 0x7F with its sign; -0 becomes 0x80; magnitudes up to 2^-17 become zero with their
//                sign
//        source  OCP 8-bit Floating Point Specification 1.0
#pragma once

#include "formats/hd.h"

namespace halfbyte {

inline constexpr float kE5m2Max = 57344.0f;

HB_HD constexpr std::uint8_t e5m2_encode(float x) {
  const std::uint32_t bits = float_bits(x), magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t sign = bits >> 24 & 0x80u;
  if (magnitude >= kInfBits) return static_cast<std::uint8_t>(sign | (magnitude > kInfBits ? 0x7Fu : 0x7Cu));
  if (magnitude >= float_bits(kE5m2Max)) return static_cast<std::uint8_t>(sign | 0x7Bu);
  if (magnitude < float_bits(pow2f(-14))) {  // at 2^7 a float32 step is 2^-16
    const std::uint32_t steps = float_bits(add_rn(bits_float(magnitude), 128.0f)) - float_bits(128.0f);
    return static_cast<std::uint8_t>(sign | steps);
  }
  const std::uint32_t rounded =
      magnitude + 0xFFFFFu + (magnitude >> 21 & 1u) - (112u << 23);  // bias 127 becomes 15
  return static_cast<std::uint8_t>(sign | rounded >> 21);
}

HB_HD constexpr float e5m2_decode(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7Fu;
  if (magnitude > 0x7Cu) return bits_float(sign | 0x7FC00000u);
  if (magnitude == 0x7Cu) return bits_float(sign | kInfBits);
  if (magnitude < 4u) {
    const float value = static_cast<float>(magnitude) * pow2f(-16);
    return sign ? -value : value;
  }
  return bits_float(sign | ((magnitude << 21) + (112u << 23)));
}

static_assert(e5m2_encode(57344.0f) == 0x7B && e5m2_encode(-1e30f) == 0xFB && e5m2_decode(0x7B) == 57344.0f);
static_assert(e5m2_encode(1.0f) == 0x3C && e5m2_encode(1.125f) == 0x3C && e5m2_encode(1.375f) == 0x3E);
static_assert(e5m2_encode(pow2f(-17)) == 0 && e5m2_encode(3 * pow2f(-17)) == 2 &&
              e5m2_decode(4) == pow2f(-14));

}  // namespace halfbyte
