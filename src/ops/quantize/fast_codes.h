// Shorter ways to codes, for kernels where the codec's comparisons would cost time. The same code runs on the host, where
// the tests compare it with the codecs.
#pragma once

#include <cstdint>

#include "formats/e2m1.h"
#include "formats/fp4.h"
#include "formats/hd.h"
#include "formats/nf4.h"

namespace halfbyte {

// ---- quotients ------------------------------------------------------------------------------------------------------

// x / divisor from inverse = R32(1 / divisor): one multiplication and one correction with the exact remainder. Equal to the
// rounded quotient except, at most, where the exact one lies within 2^-45 of the middle between two float32, and there a
// neighbour; so it is on the same side of, or equal to, every tie of a code (a number of few bits) as the rounded quotient.
// For 2^-90 < divisor < 2^90 and quotients below 2^20.
HB_HD inline float quick_quotient(float x, float divisor, float inverse) {
  const float quotient = mul_rn(x, inverse);
#ifdef __CUDA_ARCH__
  return __fmaf_rn(__fmaf_rn(-quotient, divisor, x), inverse, quotient);
#else
  return __builtin_fmaf(__builtin_fmaf(-quotient, divisor, x), inverse, quotient);
#endif
}

HB_HD constexpr bool quick_quotient_holds(float divisor, float absmax) {
  return divisor > pow2f(-90) && divisor < pow2f(90) && absmax < pow2f(100);
}

// ---- E2M1 -----------------------------------------------------------------------------------------------------------

// The smaller of two pairs of unsigned 16-bit numbers, each for itself.
HB_HD constexpr std::uint32_t min_halves(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  return __vminu2(a, b);
#else
  const std::uint32_t low = (a & 0xFFFFu) < (b & 0xFFFFu) ? a & 0xFFFFu : b & 0xFFFFu;
  const std::uint32_t high = a >> 16 < b >> 16 ? a >> 16 : b >> 16;
  return high << 16 | low;
#endif
}

// Codes of two numbers given as FP16 of number * 2^-14, in bits 0..3 and 16..19. Scaled so, FP16 and E2M1 have the same
// exponents down to the subnormal 0.5, and bits 9..11 are E2M1's index once the nine below are rounded away, ties to even:
// 5 is 0x0D00, plus 0x00FF plus the last kept bit 0 is 0x0DFF, index 6 (4.0). For finite numbers.
HB_HD constexpr std::uint32_t e2m1_codes_of_halves(std::uint32_t halves) {
  const std::uint32_t magnitude = min_halves(halves & 0x7FFF7FFFu, 0x0E000E00u);  // 6
  const std::uint32_t rounded = magnitude + 0x00FF00FFu + (magnitude >> 9 & 0x00010001u);
  return (rounded >> 9 & 0x00070007u) | (halves >> 12 & 0x00080008u);
}

// Code of a number given as float32 of number * 2^-126, the same way: exact for numbers of up to 12 bits.
HB_HD constexpr std::uint32_t e2m1_code_of_scaled(float scaled) {
  const std::uint32_t bits = float_bits(scaled);
  std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x01C00000u) magnitude = 0x01C00000u;  // 6
  return (magnitude + 0x1FFFFFu + (magnitude >> 22 & 1u)) >> 22 | (bits >> 28 & 8u);
}

// Code of any finite float32.
HB_HD constexpr std::uint32_t e2m1_code_of_finite(float x) {
  const float a = abs_value(x);
  return static_cast<std::uint32_t>((a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                                    (a >= 3.5f) + (a > 5.0f)) |
         (float_bits(x) >> 28 & 8u);
}

// ---- NF4 and FP4: a bucket, then one comparison ---------------------------------------------------------------------

// bucket() never falls where its argument grows, so the thresholds of lower buckets lie below a value and those of higher
// ones above it, and no bucket holds two thresholds that could both matter.
struct BucketEntry {
  float threshold;
  std::uint32_t codes;  // bits 0..3: at or below the threshold; bits 4..7: above it
};

struct Nf4Buckets {
  static constexpr int kCount = 31;
  HB_HD static constexpr std::uint32_t bucket(float v) {  // v in [-1, 1] or an ulp beyond; round(15 v) + 15
    return (float_bits(add_rn(mul_rn(v, 15.0f), 12582912.0f + 15.0f)) - float_bits(12582912.0f)) & 31u;
  }
  static constexpr float threshold(int i) { return nf4_threshold(i); }
  static constexpr std::uint8_t code_at(int rank) { return static_cast<std::uint8_t>(rank); }
};

struct Fp4Buckets {
  static constexpr int kCount = 32;
  // Half octaves from 1/16 on, and all below in one: the only threshold there is 1/384. Zero counts as negative.
  HB_HD static constexpr std::uint32_t bucket(float v) {
    const std::uint32_t octave = (float_bits(v) & 0x7FFFFFFFu) >> 22;
    const std::uint32_t place = octave > 245u ? octave - 245u : 0u;
    return v <= 0.0f ? 15u - place : 16u + place;
  }
  static constexpr float threshold(int i) { return fp4_threshold(i); }
  static constexpr std::uint8_t code_at(int rank) { return fp4_code_at(rank); }
};

template <class Buckets>
constexpr BucketEntry bucket_entry(std::uint32_t bucket) {
  int below = 0, inside = -1;  // thresholds of lower buckets; the first one of this bucket
  for (int i = 14; i >= 0; --i) {
    const std::uint32_t at = Buckets::bucket(Buckets::threshold(i));
    if (at < bucket) ++below;
    if (at == bucket) inside = i;
  }
  const std::uint32_t low = Buckets::code_at(below);
  if (inside < 0) return {2.0f, low | low << 4};
  return {Buckets::threshold(inside), low | static_cast<std::uint32_t>(Buckets::code_at(below + 1)) << 4};
}

struct BucketTable {
  BucketEntry entry[32];
};

template <class Buckets>
constexpr BucketTable bucket_table() {
  BucketTable table{};
  for (std::uint32_t i = 0; i < 32; ++i) table.entry[i] = bucket_entry<Buckets>(i);
  return table;
}

HB_HD constexpr std::uint32_t bucket_code(const BucketEntry& entry, float v) {
  return entry.codes >> (v > entry.threshold ? 4 : 0) & 15u;
}

#ifndef __CUDA_ARCH__
static_assert(e2m1_codes_of_halves(0x8D000200u) == ((6u | 8u) << 16 | 1u),
              "-5 goes to the even -4, 0.5 is itself");
static_assert(e2m1_code_of_scaled(bits_float(0x01A00000u)) == 6 && e2m1_code_of_finite(-0.25f) == 8);
#endif

}  // namespace halfbyte
