// INT8   levels  integers -127..127 in two's complement, one byte a value (-128 is decoded, never written)
//        scale   R32(max(absmax, 1e-12) / 127) per row, float32, symmetric: a row of a weight is an output
//                channel, a row of an activation is a token
//        value   R32(integer * scale)
//        encode  R32(x / scale) rounded half to even, clamped to -127..127; a zero row has codes 0
//        limits  rows below 1e-12 lose bits; an absmax next to the largest float32 may decode to Inf
#pragma once

#include "formats/hd.h"

namespace halfbyte {

HB_HD constexpr float int8_scale(float absmax) { return (absmax < 1e-12f ? 1e-12f : absmax) / 127.0f; }

HB_HD constexpr std::uint8_t int8_encode(float x, float scale) {
  const float quotient = x / scale;
  const float integer = round_half_even(quotient < -127.0f ? -127.0f : quotient > 127.0f ? 127.0f : quotient);
  return static_cast<std::uint8_t>(static_cast<int>(integer));
}

HB_HD constexpr int int8_level(std::uint8_t code) { return (code ^ 128) - 128; }
HB_HD constexpr float int8_decode(std::uint8_t code, float scale) {
  return mul_rn(static_cast<float>(int8_level(code)), scale);
}

static_assert(int8_encode(2.5f, 1.0f) == 2 && int8_encode(-200.0f, 1.0f) == 129 &&
              int8_decode(129, 1.0f) == -127.0f);

}  // namespace halfbyte
