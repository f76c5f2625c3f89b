// HB_HD marks codecs for host and device; bit casts and singly rounded arithmetic that mean the same on both.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define HB_HD __host__ __device__
#else
#define HB_HD
#endif

namespace halfbyte {

HB_HD constexpr std::uint32_t float_bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }
HB_HD constexpr float bits_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline constexpr std::uint32_t kInfBits = 0x7F800000u;

HB_HD constexpr bool is_nan(float x) { return (float_bits(x) & 0x7FFFFFFFu) > kInfBits; }
HB_HD constexpr bool is_finite(float x) { return (float_bits(x) & kInfBits) != kInfBits; }
HB_HD constexpr bool sign_bit(float x) { return float_bits(x) >> 31 != 0; }
HB_HD constexpr float abs_value(float x) { return bits_float(float_bits(x) & 0x7FFFFFFFu); }

// A product and a sum rounded one by one: device compilers would fuse them into one FMA with other bits.
HB_HD constexpr float mul_rn(float a, float b) {
#ifdef __CUDA_ARCH__
  if (!__builtin_is_constant_evaluated()) return __fmul_rn(a, b);
#endif
  return a * b;
}
HB_HD constexpr float add_rn(float a, float b) {
#ifdef __CUDA_ARCH__
  if (!__builtin_is_constant_evaluated()) return __fadd_rn(a, b);
#endif
  return a + b;
}

// 2^exponent for -149 <= exponent <= 127, exact, subnormal numbers included.
HB_HD constexpr float pow2f(int exponent) {
  return exponent >= -126 ? bits_float(static_cast<std::uint32_t>(exponent + 127) << 23)
                          : bits_float(1u << (exponent + 149));
}

// Largest integer not above log2(x), for a positive finite x, exact.
HB_HD constexpr int floor_log2(float x) {
  const std::uint32_t bits = float_bits(x);
  if (bits >> 23) return static_cast<int>(bits >> 23) - 127;
  int exponent = -150;
  for (std::uint32_t rest = bits; rest; rest >>= 1) ++exponent;
  return exponent;
}

// x rounded to an integer, ties to even, for |x| <= 2^22: adding 1.5 * 2^23 leaves no bit for a fraction.
HB_HD constexpr float round_half_even(float x) { return add_rn(add_rn(x, 12582912.0f), -12582912.0f); }

static_assert(round_half_even(2.5f) == 2.0f && round_half_even(-3.5f) == -4.0f &&
              round_half_even(0.4f) == 0.0f);
static_assert(pow2f(-149) == bits_float(1) && pow2f(-127) * 2 == pow2f(-126) &&
              floor_log2(pow2f(-140)) == -140);

}  // namespace halfbyte
