// E8M0   the shared exponent of OCP MX: code e is 2^(e - 127), e 0..254; 255 is NaN; no sign, no zero, no Inf
//        decode  exact (e = 0 is the float32 subnormal 2^-127)
//        encode  of the magnitude, so the sign is dropped. nearest: a mantissa of 1.5 and more goes up, and
//                what lies above 2^-127 but is no normal float32 goes to 2^-126, as torch and ml_dtypes do.
//                up, down: toward +Inf, toward zero. Zero becomes code 0; too large a number, Inf included,
//                becomes 254 (saturation), so only a NaN gives 255
//        source  OCP Microscaling Formats (MX) Specification 1.0; torch 2.15, ml_dtypes 0.6, CUDA 13.0
#pragma once

#include "formats/hd.h"

namespace halfbyte {

enum class E8m0Rounding : std::uint8_t { nearest, up, down };

HB_HD constexpr std::uint8_t e8m0_encode(float x, E8m0Rounding rounding = E8m0Rounding::nearest) {
  const std::uint32_t magnitude = float_bits(x) & 0x7FFFFFFFu;
  if (magnitude > kInfBits) return 255;
  const std::uint32_t exponent = magnitude >> 23, mantissa = magnitude & 0x7FFFFFu;
  // A subnormal number is 2^-126 times mantissa / 2^23, and code 0 is 2^-127 = half of that.
  bool up = false;
  if (rounding == E8m0Rounding::up) up = exponent ? mantissa != 0 : mantissa > 0x400000u;
  if (rounding == E8m0Rounding::nearest) up = exponent ? mantissa >= 0x400000u : mantissa > 0x400000u;
  const std::uint32_t code = exponent + (up ? 1u : 0u);
  return static_cast<std::uint8_t>(code > 254u ? 254u : code);
}

HB_HD constexpr float e8m0_decode(std::uint8_t code) {
  return code == 255 ? bits_float(0x7FC00000u) : pow2f(static_cast<int>(code) - 127);
}

static_assert(e8m0_encode(1.0f) == 127 && e8m0_encode(1.5f) == 128 && e8m0_encode(1.4999f) == 127);
static_assert(e8m0_encode(0.0f) == 0 && e8m0_encode(3.4e38f) == 254 && e8m0_decode(0) == pow2f(-127));
static_assert(e8m0_encode(1.0001f, E8m0Rounding::up) == 128 &&
              e8m0_encode(1.9999f, E8m0Rounding::down) == 127);

}  // namespace halfbyte
