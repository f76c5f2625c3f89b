// Shorter ways to the levels of 8-bit codes, for kernels where the codec's branches would cost time. Each is proved
// equal to its codec for all 256 codes by the static_asserts below.
#pragma once

#include "formats/e4m3.h"
#include "formats/e5m2.h"
#include "formats/int8.h"

namespace halfbyte {

// The code's bits in the place of a float32's exponent and mantissa are the value times 2^-120 (the two biases differ by
// 120), subnormal codes included: 0x01 becomes the float32 2^-129, times 2^120 = 2^-9.
HB_HD constexpr float fast_e4m3_level(std::uint32_t code) {
  const std::uint32_t magnitude = code & 0x7Fu, sign = (code & 0x80u) << 24;
  const float level = mul_rn(bits_float(magnitude << 20 | sign), pow2f(120));
  return magnitude == 0x7Fu ? bits_float(sign | 0x7FC00000u) : level;
}

// The same with a bias difference of 112; exponent 31 means Inf or NaN.
HB_HD constexpr float fast_e5m2_level(std::uint32_t code) {
  const std::uint32_t magnitude = code & 0x7Fu, sign = (code & 0x80u) << 24;
  const float level = mul_rn(bits_float(magnitude << 21 | sign), pow2f(112));
  const std::uint32_t special = magnitude == 0x7Cu ? kInfBits : 0x7FC00000u;
  return magnitude >= 0x7Cu ? bits_float(sign | special) : level;
}

// 2^23 has a float32 step of 1: the code with its sign bit flipped (0..255) becomes the last byte of 2^23 + code + 128.
HB_HD constexpr float fast_int8_level(std::uint32_t code) {
  return add_rn(bits_float(0x4B000000u | ((code & 0xFFu) ^ 0x80u)), -8388736.0f);
}

static_assert([] {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    if (float_bits(fast_e4m3_level(code)) != float_bits(e4m3_decode(byte))) return false;
    if (float_bits(fast_e5m2_level(code)) != float_bits(e5m2_decode(byte))) return false;
    if (fast_int8_level(code) != static_cast<float>(int8_level(byte))) return false;
  }
  return true;
}());

}  // namespace halfbyte
