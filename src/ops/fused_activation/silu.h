// SiLU(gate) * up of one pair of values, for host and device: step by step what the op silu_mul does with Highway's Exp where
// the machine fuses products and sums, so the bits are the same there.
#pragma once

#include <cmath>

#include "ops/quantize/fast_codes.h"

namespace halfbyte {

// x without its fraction, for |x| < 2^21.
HB_HD inline float whole_part(float x) {
#ifdef __CUDA_ARCH__
  // Near 1.5 * 2^23 with the sign of x, rounding toward zero cuts the fraction off.
  const float large = bits_float(0x4B400000u | (float_bits(x) & 0x80000000u));
  return __fadd_rz(x, large) - large;
#else
  return std::trunc(x);
#endif
}

// exp(x) for |x| <= 87, within a few float32 steps, but anything near zero below 2^-125: 2^q e^r, with the polynomial of
// Highway 1.0 for e^r.
HB_HD inline float exp_near(float x) {
  const float half = bits_float(0x3F000000u | (float_bits(x) & 0x80000000u));
  const float q = whole_part(fma_rn(x, 1.44269504088896341f, half));
  const float r = fma_rn(q, -1.428606765330187045e-6f, fma_rn(q, -0.693145751953125f, x));
  const float r2 = mul_rn(r, r), r4 = mul_rn(r2, r2);
  const float low = fma_rn(0.166666671633720397949219f, r, 0.5f);
  const float middle = fma_rn(0.00833336077630519866943359f, r, 0.0416664853692054748535156f);
  const float high = fma_rn(0.000198527617612853646278381f, r, 0.00139304355252534151077271f);
  const float polynomial = fma_rn(fma_rn(r4, high, fma_rn(r2, middle, low)), r2, r);
  // q + 127 in the low bits of a float32 whose step is 1 is the exponent of 2^q.
  const std::uint32_t power = float_bits(add_rn(q, 12582912.0f + 127.0f)) << 23;
  return mul_rn(add_rn(polynomial, 1.0f), bits_float(power));
}

HB_HD inline float silu_mul(float gate, float up) {
  float x = -gate < 87.0f ? -gate : 87.0f;  // exp(88.8) is infinite
  x = x > -87.0f ? x : -87.0f;              // 1 + e^-87 is 1
  return mul_rn(gate / add_rn(1.0f, exp_near(x)), up);
}

}  // namespace halfbyte
