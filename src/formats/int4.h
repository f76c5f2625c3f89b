// INT4   levels  integers -8..7 in two's complement (encode writes -7..7)
//        scale   R32(max(absmax, 1e-12) / 7) per block of 64 (32, 64, 128) along a row, float32, symmetric
//        value   R32(integer * scale)
//        encode  R32(x / scale) rounded half to even, clamped to -8..7; a zero block has codes 0
//        bytes   low nibble first (packing.h), each row on its own
//        limits  blocks below 1e-12 lose bits; an absmax next to the largest float32 may decode to Inf
#pragma once

#include "formats/hd.h"

namespace halfbyte {

HB_HD constexpr float int4_scale(float absmax) { return (absmax < 1e-12f ? 1e-12f : absmax) / 7.0f; }

HB_HD constexpr std::uint8_t int4_encode(float x, float scale) {
  const float quotient = x / scale;
  const float integer = round_half_even(quotient < -8.0f ? -8.0f : quotient > 7.0f ? 7.0f : quotient);
  return static_cast<std::uint8_t>(static_cast<int>(integer) & 15);
}

// The upper four bits are ignored.
HB_HD constexpr int int4_level(std::uint8_t code) { return ((code & 15) ^ 8) - 8; }
HB_HD constexpr float int4_decode(std::uint8_t code, float scale) {
  return mul_rn(static_cast<float>(int4_level(code)), scale);
}

static_assert(int4_encode(2.5f, 1.0f) == 2 && int4_encode(-3.5f, 1.0f) == 12 &&
              int4_encode(-9.0f, 1.0f) == 8);
static_assert(int4_decode(15, 0.5f) == -0.5f && int4_decode(8, 1.0f) == -8.0f);

}  // namespace halfbyte
