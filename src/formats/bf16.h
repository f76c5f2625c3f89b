// BF16   the upper half of a float32: sign, 8 exponent bits (bias 127), 7 mantissa bits
//        decode  exact for every pattern
//        encode  nearest even; a magnitude that rounds past 3.3895e38 becomes Inf (bf16_encode) or stays the
//                largest finite number (bf16_encode_saturating; Inf stays Inf in both); -0 and subnormal
//                numbers are kept; NaN becomes the quiet NaN 0x7FC0 with its sign
#pragma once

#include "formats/hd.h"

namespace halfbyte {

HB_HD constexpr float bf16_decode(std::uint16_t code) {
  return bits_float(static_cast<std::uint32_t>(code) << 16);
}

HB_HD constexpr std::uint16_t bf16_encode(float x) {
  const std::uint32_t bits = float_bits(x);
  if (is_nan(x)) return static_cast<std::uint16_t>(0x7FC0u | (bits >> 16 & 0x8000u));
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

HB_HD constexpr std::uint16_t bf16_encode_saturating(float x) {
  const std::uint16_t code = bf16_encode(x);
  return is_finite(x) && (code & 0x7FFFu) == 0x7F80u ? static_cast<std::uint16_t>(code - 1) : code;
}

HB_HD constexpr float round_to_bf16(float x) { return bf16_decode(bf16_encode(x)); }

static_assert(bf16_encode(1.0f) == 0x3F80 && bf16_encode(-0.0f) == 0x8000);
static_assert(bf16_encode(bits_float(0x3F808000)) == 0x3F80, "a tie goes to the even code");
static_assert(bf16_encode(bits_float(0x3F818000)) == 0x3F82, "a tie goes to the even code");
static_assert(bf16_encode(3.4e38f) == 0x7F80 && bf16_encode_saturating(-3.4e38f) == 0xFF7F);

}  // namespace halfbyte
