// FP16   IEEE binary16: sign, 5 exponent bits (bias 15), 10 mantissa bits; largest 65504, subnormals 2^-24
//        decode  exact; a NaN becomes the quiet float32 NaN with its payload
//        encode  nearest even; from 65520 on Inf (fp16_encode) or 65504 (fp16_encode_saturating; Inf stays
//                Inf in both); -0 is kept, magnitudes up to 2^-25 become 0; NaN becomes the quiet NaN 0x7E00
//                with its sign
#pragma once

#include "formats/hd.h"

namespace halfbyte {

HB_HD constexpr float fp16_decode(std::uint16_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000u) << 16;
  const std::uint32_t magnitude = code & 0x7FFFu;
  if (magnitude >= 0x7C00u)
    return bits_float(sign | kInfBits | (magnitude & 0x3FFu) << 13 | (magnitude > 0x7C00u ? 0x400000u : 0u));
  if (magnitude < 0x0400u) {  // a multiple of 2^-24
    const float value = static_cast<float>(magnitude) * pow2f(-24);
    return sign ? -value : value;
  }
  return bits_float(sign | ((magnitude << 13) + (112u << 23)));  // exponent bias 15 becomes 127
}

HB_HD constexpr std::uint16_t fp16_encode(float x) {
  const std::uint32_t bits = float_bits(x), magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  if (magnitude > kInfBits) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= float_bits(65520.0f)) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (magnitude < float_bits(pow2f(-14))) {  // at 0.5 a float32 step is 2^-24
    const std::uint32_t steps = float_bits(add_rn(bits_float(magnitude), 0.5f)) - float_bits(0.5f);
    return static_cast<std::uint16_t>(sign | steps);
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u) - (112u << 23);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

HB_HD constexpr std::uint16_t fp16_encode_saturating(float x) {
  const std::uint16_t code = fp16_encode(x);
  return is_finite(x) && (code & 0x7FFFu) == 0x7C00u ? static_cast<std::uint16_t>(code - 1) : code;
}

HB_HD constexpr float round_to_fp16(float x) { return fp16_decode(fp16_encode(x)); }

static_assert(fp16_encode(1.0f) == 0x3C00 && fp16_decode(0x3C01) == 1.0f + 1.0f / 1024 &&
              fp16_encode(-0.0f) == 0x8000);
static_assert(fp16_encode(65519.0f) == 0x7BFF && fp16_encode(65520.0f) == 0x7C00);
static_assert(fp16_encode_saturating(-65520.0f) == 0xFBFF);
static_assert(fp16_encode(pow2f(-25)) == 0 && fp16_encode(3 * pow2f(-25)) == 2 &&
              fp16_decode(1) == pow2f(-24));

}  // namespace halfbyte
