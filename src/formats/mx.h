// The shared exponent of OCP MX (MXFP4, MXFP8): one E8M0 code per block of 32 along a row, by a named rule.
// A zero block has code 0 under every rule (compressed_tensors on an FP16 tensor: 127), and no rule gives the
// NaN code 255 for finite input. Values are divided by the scale that the code stands for, 2^-127 for code 0;
// torchao divides those blocks by 2^-126 (rceil: by 1), so its codes differ there and nowhere else.
#pragma once

#include <cmath>

#include "formats/e8m0.h"
#include "formats/source_dtype.h"

namespace halfbyte {

inline constexpr std::int64_t kMxBlock = 32;

// How the exponent follows from absmax; emax is the exponent of the element type's largest number.
enum class MxScaleRule : std::uint8_t {
  floor,               // OCP MX 1.0: floor(log2(absmax)) - emax; values above the largest element saturate
  ceil,                // ceil(log2(absmax)) - emax (torchao)
  rceil,               // R32(absmax / largest element) rounded up to a power of two (torchao)
  even,                // absmax rounded to the mantissa of the element type first, half up (torchao)
  compressed_tensors,  // absmax >= 1.75 * 2^k counts as 2^(k+1), for every element type; in the tensor's
                       // own type
  modelopt,            // MXFP4 only: ceil(log2f(R32(absmax / 6)))
};

struct MxElement {
  int emax;           // exponent of the largest number
  int mantissa_bits;  // stored ones
  float largest;
};
inline constexpr MxElement kMxE2m1{.emax = 2, .mantissa_bits = 1, .largest = 6.0f};
inline constexpr MxElement kMxE4m3{.emax = 8, .mantissa_bits = 3, .largest = 448.0f};
inline constexpr MxElement kMxE5m2{.emax = 15, .mantissa_bits = 2, .largest = 57344.0f};

// E8M0 code of a block with that largest magnitude (finite).
HB_HD constexpr std::uint8_t mx_encode_scale(MxScaleRule rule, MxElement element, float absmax,
                                             DType source) {
  const std::uint32_t bits = float_bits(absmax);
  int code = 0;  // exponent + 127
  switch (rule) {
    case MxScaleRule::floor:
      code = static_cast<int>(bits >> 23) - element.emax;
      break;
    case MxScaleRule::ceil:
      code = static_cast<int>(bits >> 23) + ((bits & 0x7FFFFFu) != 0) - element.emax;
      break;
    case MxScaleRule::rceil:
      return e8m0_encode(absmax / element.largest, E8m0Rounding::up);
    case MxScaleRule::even:
      code = static_cast<int>((bits + (1u << (22 - element.mantissa_bits))) >> 23) - element.emax;
      break;
    case MxScaleRule::compressed_tensors:
      if (source == DType::f16) {
        const int exponent = (fp16_encode(absmax) + (1 << 8)) >> 10;  // 5-bit exponent field
        if (exponent == 0) return 127;                                // 2^-127 is 0 in FP16, which becomes 1
        code = exponent - 15 + 127 - element.emax;
      } else {
        code = static_cast<int>((bits + (1u << 21)) >> 23) - element.emax;
      }
      break;
    case MxScaleRule::modelopt:
      if (absmax / element.largest > 0.0f) {
        // The logarithm is rounded to float32 before it is rounded up, as the peer does.
        const float exponent = static_cast<float>(std::log2(static_cast<double>(absmax / element.largest)));
        code = static_cast<int>(std::ceil(exponent)) + 127;
      }
      break;
  }
  return static_cast<std::uint8_t>(code < 0 ? 0 : code > 254 ? 254 : code);
}

static_assert(mx_encode_scale(MxScaleRule::floor, kMxE2m1, 6.0f, DType::f32) == 127);
static_assert(mx_encode_scale(MxScaleRule::floor, kMxE2m1, 0.0f, DType::f32) == 0);
static_assert(mx_encode_scale(MxScaleRule::rceil, kMxE2m1, 6.5f, DType::f32) == 128);
static_assert(mx_encode_scale(MxScaleRule::compressed_tensors, kMxE2m1, 7.0f, DType::f32) == 128);

}  // namespace halfbyte
