// Shorter ways to codes, for kernels where the codec's comparisons would cost time. The same code runs on the host, where
// the tests compare it with the codecs.
#pragma once

#include <cmath>
#include <cstdint>

#include "formats/e2m1.h"
#include "formats/fp16.h"
#include "formats/fp4.h"
#include "formats/hd.h"
#include "formats/nf4.h"

namespace halfbyte {

HB_HD inline float fma_rn(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

// x held between 0 and 1; an option of the instruction that makes x.
HB_HD inline float saturate(float x) {
#ifdef __CUDA_ARCH__
  return __saturatef(x);
#else
  return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
#endif
}

// ---- quotients ------------------------------------------------------------------------------------------------------

// x / divisor from inverse = R32(1 / divisor): one multiplication and one correction with the exact remainder. Equal to the
// rounded quotient except, at most, where the exact one lies within 2^-45 of the middle between two float32, and there a
// neighbour; so it is on the same side of, or equal to, every tie of a code (a number of few bits) as the rounded quotient.
// For 2^-90 < divisor < 2^90 and quotients below 2^20.
HB_HD inline float quick_quotient(float x, float divisor, float inverse) {
  const float quotient = mul_rn(x, inverse);
  return fma_rn(fma_rn(-quotient, divisor, x), inverse, quotient);
}

HB_HD constexpr bool quick_quotient_holds(float divisor, float absmax) {
  return divisor > pow2f(-90) && divisor < pow2f(90) && absmax < pow2f(100);
}

// The integer nearest to a quotient below 2^22, ties to even, in the low bits: 1.5 * 2^23 has a float32 step of 1. No clamp:
// with scale = R32(absmax / n) no quotient of the block rounds beyond n.
HB_HD inline std::uint32_t quick_integer(float x, float scale, float inverse) {
  return float_bits(add_rn(quick_quotient(x, scale, inverse), 12582912.0f));
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

// The larger ones.
HB_HD constexpr std::uint32_t max_halves(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  return __vmaxu2(a, b);
#else
  return ~min_halves(~a, ~b);
#endif
}

// The sum of two pairs of FP16, rounded to nearest even.
HB_HD inline std::uint32_t add_halves(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
#else
  auto add = [](std::uint32_t x, std::uint32_t y) -> std::uint32_t {
    return fp16_encode(fp16_decode(static_cast<std::uint16_t>(x)) +
                       fp16_decode(static_cast<std::uint16_t>(y)));
  };
  return add(a >> 16, b >> 16) << 16 | add(a & 0xFFFFu, b & 0xFFFFu);
#endif
}

// Codes of two numbers given as FP16, in bits 0..3 and 16..19, for any finite numbers. Between 2^e and 2^(e+1) the levels lie
// 2^(e-1) apart (below 1 as for e = 0), which is the step of FP16 at 2^(e+9): adding that rounds to a level, ties to even,
// and leaves the number of steps m in the low bits. The index is m + 2 e: 5.5 is m = 3 steps of 2, index 7.
HB_HD inline std::uint32_t e2m1_codes_of_plain_halves(std::uint32_t halves) {
  const std::uint32_t magnitude = min_halves(halves & 0x7FFF7FFFu, 0x46004600u);  // 6
  const std::uint32_t power = max_halves(magnitude & 0x7C007C00u, 0x3C003C00u);   // at least that of 1
  const std::uint32_t large = power + 0x24002400u;
  const std::uint32_t index = add_halves(magnitude, large) - large + (power >> 9) - 0x001E001Eu;
  return index | (halves >> 12 & 0x00080008u);
}

// Code of any finite float32 in the same way, at 2^(e+22). The sign is given apart: quick_quotient() may lose that of a zero.
HB_HD constexpr std::uint32_t e2m1_code_of_finite(float x, std::uint32_t sign_of) {
  float a = abs_value(x);
  a = a < 6.0f ? a : 6.0f;
  const std::uint32_t exponent = float_bits(a) & 0x7F800000u,
                      power = exponent > 0x3F800000u ? exponent : 0x3F800000u;
  const std::uint32_t large = power + (22u << 23);
  const std::uint32_t index = float_bits(add_rn(a, bits_float(large))) - large + (power >> 22) - 254u;
  return index | (sign_of >> 28 & 8u);
}

// ---- NF4 and FP4: a bucket, then one comparison ---------------------------------------------------------------------

// A bucket is an interval of the value v = R32(x * factor) that holds at most one threshold that matters, and thresholds
// keep away from bucket edges. bucket() gives its number times 4, the offset of a word in a table. The rank of the level
// then is the bucket's, plus one where v lies above the bucket's threshold; finish() turns eight ranks into codes.

struct Nf4Buckets {
  // fifteens = R32(15 factor). At 1.5 * 2^21 a float32 step is 1/4: bits 2 to 6 of the sum are floor(15 v + 16.75), to a
  // quarter. No threshold comes nearer to an edge than 0.0016.
  HB_HD static std::uint32_t bucket(float x, float, float fifteens) {
    return float_bits(fma_rn(x, fifteens, 3145728.0f + 16.75f)) & 0x7Cu;
  }
  HB_HD static constexpr std::uint32_t finish(std::uint32_t ranks) { return ranks; }
  static float threshold(int i) { return nf4_threshold(i); }
};

struct Fp4Buckets {
  // ceil(15 v) + 15 of the exact product: rounding upwards puts zero with the negative numbers and every v above it into the
  // next bucket, so that 0 is an edge and -1/384 and 1/384 have buckets of their own. The sum is made in quarters, and 3/4
  // more turn the ceiling of those into that of whole ones. No other threshold comes nearer to an edge than 0.008.
  HB_HD static std::uint32_t bucket(float, float v, float) {
#ifdef __CUDA_ARCH__
    return float_bits(__fmaf_ru(v, 15.0f, 3145728.0f + 15.75f)) & 0x7Cu;
#else
    return static_cast<std::uint32_t>(static_cast<int>(std::ceil(60.0 * static_cast<double>(v))) + 63) &
           0x7Cu;
#endif
  }
  // Eight ranks in the order of value to codes. Rank 8 + m is code m' (but 8 for m = 0), rank 7 - m is code 8 | m' (but 0),
  // where m' is m with bit 2 turned where bit 1 is set: 0 1 6 7 4 5 2 3.
  HB_HD static constexpr std::uint32_t finish(std::uint32_t ranks) {
    const std::uint32_t positive = ranks & 0x88888888u, sevens = positive - (positive >> 3);
    const std::uint32_t m = (ranks ^ ~sevens) & 0x77777777u;
    const std::uint32_t sign = ((m + 0x77777777u) ^ ranks) & 0x88888888u;  // bit 3 of m + 7: m is not 0
    return (m ^ (m << 1 & 0x44444444u)) | sign;
  }
  static float threshold(int i) { return fp4_threshold(i); }
};

// Arrays of 32 words: in shared memory every bucket has a bank of its own.
struct BucketTable {
  float threshold[32];  // times -2^100
  float rank[32];       // at or below the threshold

  template <class Buckets>
  static BucketTable of() {
    BucketTable table{};
    const float scale = -pow2f(100);
    for (float& threshold : table.threshold) threshold = 2.0f * scale;
    for (int i = 14; i >= 0; --i)
      table.threshold[bucket_of<Buckets>(Buckets::threshold(i))] = Buckets::threshold(i) * scale;
    // From the lowest value up, a grid much finer than the buckets finds the thresholds below each bucket.
    std::uint32_t seen = 0;
    for (int k = -4096; k <= 4096; ++k) {
      const float v = static_cast<float>(k) / 4096.0f;
      const std::uint32_t bucket = bucket_of<Buckets>(v);
      if (seen >> bucket & 1u) continue;
      seen |= 1u << bucket;
      int below = 0;
      for (int i = 0; i < 15; ++i)
        below += Buckets::threshold(i) < v && bucket_of<Buckets>(Buckets::threshold(i)) != bucket;
      table.rank[bucket] = static_cast<float>(below);
    }
    return table;
  }

 private:
  template <class Buckets>
  static std::uint32_t bucket_of(float v) {
    return Buckets::bucket(v, v, 15.0f) / 4;
  }
};

// Eight codes of x times factor, the last value's lowest: for high-nibble-first bytes hand over elements 6 7 4 5 2 3 0 1.
// Four ranks at a time make one float32 integer, because its multiplications and additions are twice as fast as those of
// integers: (v - threshold) 2^100, exact in sign, saturates to the 0 or 1 that is added.
template <class Buckets>
HB_HD inline std::uint32_t eight_codes(const BucketTable& table, const float (&x)[8], float factor,
                                       float fifteens) {
  std::uint32_t halves[2] = {};
  for (int h = 0; h < 2; ++h) {
    float ranks = 0.0f;
    for (int i = 4 * h; i < 4 * h + 4; ++i) {
      const float v = mul_rn(x[i], factor);
      const char* at = reinterpret_cast<const char*>(&table) + Buckets::bucket(x[i], v, fifteens);
      const float above = saturate(fma_rn(v, pow2f(100), *reinterpret_cast<const float*>(at)));
      ranks = add_rn(fma_rn(ranks, 16.0f, *reinterpret_cast<const float*>(at + 128)), above);
    }
    halves[h] = float_bits(add_rn(ranks, 8388608.0f));  // 2^23: the integer in the low bits
  }
#ifdef __CUDA_ARCH__
  return Buckets::finish(__byte_perm(halves[1], halves[0], 0x5410));
#else
  return Buckets::finish((halves[0] & 0xFFFFu) << 16 | (halves[1] & 0xFFFFu));
#endif
}

#ifndef __CUDA_ARCH__
static_assert(e2m1_codes_of_halves(0x8D000200u) == ((6u | 8u) << 16 | 1u),
              "-5 goes to the even -4, 0.5 is itself");
static_assert(e2m1_code_of_finite(-0.25f, 1u << 31) == 8);
#endif

}  // namespace halfbyte
