// NVFP4  levels  0 0.5 1 1.5 2 3 4 6 and their negatives (E2M1, bit 3 is the sign)
//        scale   one E4M3 per block of 16 along a row, 2^-9 to 448, never zero; one float32 per tensor
//        value   R32(level * step), step = R32(scale * global) (compressed_tensors: R32(scale / global))
//        encode  the scale is rounded first, then each value R32(x / step) against the rounded scale, ties to
//                even, saturating at 6. A zero block gets the scale that its rule names below and codes 0 (8
//                for -0)
//        bytes   low nibble first (packing.h), each row on its own
//        limits  an absmax below 1e-12 counts as 1e-12 in the global scale (pow2, amax), so smaller tensors
//                lose bits, subnormal ones everything. An absmax within 7 % of the largest float32 may decode
//                to Inf
//        source  OCP MX 1.0 for E2M1; compressed-tensors 0.20.1 and nvidia-modelopt 0.47.0 for their rules
#pragma once

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/source_dtype.h"

namespace halfbyte {

inline constexpr std::int64_t kNvfp4Block = 16;

// How the scales of a tensor are found. R32 rounds to float32, RD to the tensor's own type (f32, bf16, f16).
enum class GlobalScaleRule : std::uint8_t {
  // global = R32(amax / 2688) rounded up to a power of two: every decoded value is exact in BF16, and so is
  // the reciprocal of the scale. Block scale = E4M3(R32(R32(absmax / 6) / global)); a zero becomes 2^-9.
  pow2,
  // The same with global = R32(amax / 2688).
  amax,
  // global is a divisor: RD(RD(1 / amax) * 2688), 1 where that is not finite. Block scale =
  // E4M3(R32(global * RD(absmax / 6))); a zero becomes 2^-3. The sign bit is set only below zero.
  compressed_tensors,
  // global = R32(amax / 2688). Block scale = E4M3 of R32(absmax / R32(6 * global)); a zero first becomes 1,
  // then all are clamped to [2^-9, 448]. The sign bit is set only below zero.
  modelopt,
};

// amax: largest magnitude of the tensor. The result is a divisor for compressed_tensors, else a factor.
HB_HD constexpr float nvfp4_global_scale(GlobalScaleRule rule, float amax, DType source) {
  switch (rule) {
    case GlobalScaleRule::compressed_tensors: {
      const float smallest = source == DType::f16 ? pow2f(-14) : pow2f(-126);
      const float clamped = amax < smallest ? smallest : amax;
      const float divisor = round_to_dtype(source, mul_rn(round_to_dtype(source, 1.0f / clamped), 2688.0f));
      return is_finite(divisor) ? divisor : 1.0f;
    }
    case GlobalScaleRule::modelopt:
      return amax / 2688.0f;
    case GlobalScaleRule::amax:
    case GlobalScaleRule::pow2:
      break;
  }
  const float factor = (amax < 1e-12f ? 1e-12f : amax) / 2688.0f;
  if (rule == GlobalScaleRule::amax) return factor;
  const int exponent = floor_log2(factor);
  return pow2f(pow2f(exponent) == factor ? exponent : exponent + 1);
}

// E4M3 code of a block's scale. largest_level is 6, or 4 for the second choice of 4/6 (rules pow2 and amax).
HB_HD constexpr std::uint8_t nvfp4_encode_scale(GlobalScaleRule rule, float absmax, float global,
                                                DType source, float largest_level = kE2m1Max) {
  switch (rule) {
    case GlobalScaleRule::compressed_tensors: {
      const std::uint8_t code = e4m3_encode(mul_rn(global, round_to_dtype(source, absmax / 6.0f)));
      return code == 0 ? std::uint8_t{0x20} : code;
    }
    case GlobalScaleRule::modelopt: {
      if (absmax == 0.0f) return 0x38;
      const float unit = mul_rn(6.0f, global);
      if (unit == 0.0f) return 0x7E;  // a tensor of subnormal numbers whose global scale was lost
      const float scale = absmax / unit;
      return scale == 0.0f ? std::uint8_t{0x38} : e4m3_encode(scale < pow2f(-9) ? pow2f(-9) : scale);
    }
    case GlobalScaleRule::amax:
    case GlobalScaleRule::pow2:
      break;
  }
  const std::uint8_t code = e4m3_encode(absmax / largest_level / global);
  return code == 0 ? std::uint8_t{1} : code;
}

// What one unit of E2M1 is worth in a block.
HB_HD constexpr float nvfp4_step(GlobalScaleRule rule, std::uint8_t scale_code, float global) {
  const float scale = e4m3_decode(scale_code);
  return rule == GlobalScaleRule::compressed_tensors ? scale / global : mul_rn(scale, global);
}

// Largest magnitude that a global scale can say: 6 under the largest block scale.
HB_HD constexpr float nvfp4_range(GlobalScaleRule rule, float global) {
  return mul_rn(kE2m1Max, nvfp4_step(rule, 0x7E, global));
}

// Whether a global scale that comes from outside can be used: positive, and all its steps finite.
HB_HD constexpr bool nvfp4_is_global_scale(GlobalScaleRule rule, float global) {
  return global > 0.0f && is_finite(global) && is_finite(nvfp4_step(rule, 0x7E, global));
}

HB_HD constexpr bool nvfp4_keeps_negative_zero(GlobalScaleRule rule) {
  return rule == GlobalScaleRule::pow2 || rule == GlobalScaleRule::amax;
}

HB_HD constexpr std::uint8_t nvfp4_encode(GlobalScaleRule rule, float x, float step) {
  if (step == 0.0f) return 0;  // modelopt with a global scale that underflowed: everything is zero
  return nvfp4_keeps_negative_zero(rule) ? e2m1_encode(x / step) : e2m1_encode_unsigned_zero(x / step);
}

HB_HD constexpr float nvfp4_decode(std::uint8_t code, float step) { return mul_rn(e2m1_decode(code), step); }

// Squared error of a block of count <= 16 values under one step. The order of the sum is part of the
// definition: element i meets i + 8, then i + 4, i + 2, i + 1.
HB_HD constexpr float nvfp4_block_error(GlobalScaleRule rule, const float* x, int count, float step) {
  float squares[16] = {};
  for (int i = 0; i < count; ++i) {
    const float error = add_rn(nvfp4_decode(nvfp4_encode(rule, x[i], step), step), -x[i]);
    squares[i] = mul_rn(error, error);
  }
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i) squares[i] = add_rn(squares[i], squares[i + half]);
  return squares[0];
}

// 4/6: of the scales that map absmax to 6 and to 4 the one with the smaller squared error; a tie keeps 6.
HB_HD constexpr std::uint8_t nvfp4_encode_scale_four_six(GlobalScaleRule rule, const float* x, int count,
                                                         float absmax, float global, DType source) {
  const std::uint8_t six = nvfp4_encode_scale(rule, absmax, global, source, 6.0f);
  const std::uint8_t four = nvfp4_encode_scale(rule, absmax, global, source, 4.0f);
  return nvfp4_block_error(rule, x, count, nvfp4_step(rule, four, global)) <
                 nvfp4_block_error(rule, x, count, nvfp4_step(rule, six, global))
             ? four
             : six;
}

// Scale search: the nine codes around that of absmax / 6 in the order they are tried, by their offsets 0, -2, -1, 1, 2 .. 6;
// c + 6 is about that of absmax / 4.
inline constexpr int kNvfp4SearchScales = 9;
HB_HD constexpr int nvfp4_search_offset(int i) { return i == 0 ? 0 : i < 3 ? i - 3 : i - 2; }

// The code at an offset from another, kept within the positive finite ones.
HB_HD constexpr std::uint8_t nvfp4_near_scale(std::uint8_t code, int offset) {
  const int moved = code + offset;
  return static_cast<std::uint8_t>(moved < 1 ? 1 : moved > 0x7E ? 0x7E : moved);
}

// Of these nine scales the one with the least squared error; the first wins ties.
HB_HD constexpr std::uint8_t nvfp4_encode_scale_search(GlobalScaleRule rule, const float* x, int count,
                                                       float absmax, float global, DType source) {
  const std::uint8_t middle = nvfp4_encode_scale(rule, absmax, global, source);
  std::uint8_t best = middle;
  float least = 0.0f;
  for (int i = 0; i < kNvfp4SearchScales; ++i) {
    const std::uint8_t code = nvfp4_near_scale(middle, nvfp4_search_offset(i));
    const float error = nvfp4_block_error(rule, x, count, nvfp4_step(rule, code, global));
    if (i > 0 && !(error < least)) continue;
    least = error;
    best = code;
  }
  return best;
}

static_assert(nvfp4_global_scale(GlobalScaleRule::pow2, 2688.0f, DType::f32) == 1.0f);
static_assert(nvfp4_global_scale(GlobalScaleRule::pow2, 2700.0f, DType::f32) == 2.0f);
static_assert(nvfp4_global_scale(GlobalScaleRule::compressed_tensors, 1.0f, DType::bf16) == 2688.0f);
static_assert(nvfp4_encode_scale(GlobalScaleRule::amax, 0.0f, 1.0f, DType::f32) == 1);

}  // namespace halfbyte
