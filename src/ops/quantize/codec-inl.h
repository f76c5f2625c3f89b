// Vector forms of the codecs: levels and codes of many values at once, with the same roundings as
// src/formats. Compiled once per instruction set; shared by quantize and fake_quantize.

// Per-target include guard.
#if defined(HALFBYTE_OPS_QUANTIZE_CODEC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HALFBYTE_OPS_QUANTIZE_CODEC_INL_H
#undef HALFBYTE_OPS_QUANTIZE_CODEC_INL_H
#else
#define HALFBYTE_OPS_QUANTIZE_CODEC_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "formats/formats.h"

HWY_BEFORE_NAMESPACE();
namespace halfbyte {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using DU8 = hn::Rebind<std::uint8_t, DI>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(DF()));
static_assert(16 % hn::MaxLanes(DF()) == 0);

// Bits of the largest |x[i]|, i < count, count a multiple of 16. Inf and NaN have bits from 0x7F800000 on.
HWY_INLINE std::int32_t AbsmaxBits(const float* x, std::int64_t count) {
  const DI di;
  const VI mask = hn::Set(di, 0x7FFFFFFF);
  VI largest = hn::Zero(di);
  for (std::int64_t i = 0; i < count; i += kLanes)
    largest = hn::Max(largest, hn::And(mask, hn::BitCast(di, hn::LoadU(DF(), x + i))));
  return hn::GetLane(hn::MaxOfLanes(di, largest));
}

HWY_INLINE void StoreCodes(VI codes, std::uint8_t* out) {
  hn::StoreU(hn::DemoteTo(DU8(), codes), DU8(), out);
}

// The E2M1 level nearest to a quotient, ties to even, saturating; keeps_zero_sign as in formats/nvfp4.h.
struct E2m1Codec {
  bool keeps_zero_sign;

  HWY_INLINE VF Level(VF quotient) const {
    const DF d;
    const VF magnitude = hn::Min(hn::Abs(quotient), hn::Set(d, 6.0f));
    // Adding 1.5 * 2^23 steps rounds to a multiple of the step; steps are 1/2 below 2, 1 below 4, then 2.
    const VF big = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 2.0f)), hn::Set(d, 6291456.0f),
                                  hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 4.0f)), hn::Set(d, 12582912.0f),
                                                 hn::Set(d, 25165824.0f)));
    const VF level = hn::Sub(hn::Add(magnitude, big), big);
    if (keeps_zero_sign) return hn::CopySign(level, quotient);
    return hn::IfThenElse(hn::Lt(quotient, hn::Zero(d)), hn::Neg(level), level);
  }

  HWY_INLINE VI Code(VF level) const {
    const DI di;
    const VI bits = hn::BitCast(di, level);
    const VI magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
    // From 1 on the code is the exponent and the first mantissa bit, 2 for 1.0 (0x3F8 << 20); below it is 0
    // or 1.
    const VI large = hn::Sub(hn::ShiftRight<22>(magnitude), hn::Set(di, 252));
    const VI small = hn::ShiftRight<29>(magnitude);  // 0.5 is 0x3F0 << 20
    const auto is_large = hn::Gt(magnitude, hn::Set(di, 0x3F000000));
    const VI index = hn::IfThenElse(is_large, large, small);
    return hn::Or(index,
                  hn::And(hn::BitCast(di, hn::ShiftRight<28>(hn::BitCast(hn::RebindToUnsigned<DI>(), bits))),
                          hn::Set(di, 8)));
  }
};

// E4M3 (3 mantissa bits, bias 7) and E5M2 (2, 15) levels of finite quotients.
template <int kMantissaBits, int kBias, std::int32_t kLargestBits>
struct MiniFloatCodec {
  static constexpr int kDropped = 23 - kMantissaBits;
  static constexpr std::int32_t kNormalBits = (128 - kBias) << 23;  // smallest normal number, 2^(1 - bias)
  // One float32 step at this number is one subnormal step, 2^(1 - bias - mantissa bits).
  static constexpr std::int32_t kBigBits = (128 - kBias - kMantissaBits + 23) << 23;

  HWY_INLINE VF Level(VF quotient) const {
    const DF d;
    const DI di;
    const VF magnitude = hn::Min(hn::Abs(quotient), hn::BitCast(d, hn::Set(di, kLargestBits)));
    const VF big = hn::BitCast(d, hn::Set(di, kBigBits));
    const VF subnormal = hn::Sub(hn::Add(magnitude, big), big);
    const VI bits = hn::BitCast(di, magnitude);
    const VI odd = hn::And(hn::ShiftRight<kDropped>(bits), hn::Set(di, 1));
    const VI rounded = hn::Add(bits, hn::Add(odd, hn::Set(di, (1 << (kDropped - 1)) - 1)));
    const VF normal = hn::BitCast(d, hn::And(rounded, hn::Set(di, ~((1 << kDropped) - 1))));
    const auto is_normal = hn::Ge(magnitude, hn::BitCast(d, hn::Set(di, kNormalBits)));
    return hn::CopySign(hn::IfThenElse(is_normal, normal, subnormal), quotient);
  }

  HWY_INLINE VI Code(VF level) const {
    const DF d;
    const DI di;
    const VF magnitude = hn::Abs(level);
    const VF big = hn::BitCast(d, hn::Set(di, kBigBits));
    const VI subnormal = hn::Sub(hn::BitCast(di, hn::Add(magnitude, big)), hn::Set(di, kBigBits));
    const VI normal =
        hn::ShiftRight<kDropped>(hn::Sub(hn::BitCast(di, magnitude), hn::Set(di, (127 - kBias) << 23)));
    const auto is_normal = hn::RebindMask(di, hn::Ge(magnitude, hn::BitCast(d, hn::Set(di, kNormalBits))));
    const VI sign = hn::BitCast(di, hn::ShiftRight<24>(hn::BitCast(hn::RebindToUnsigned<DI>(), level)));
    return hn::Or(hn::IfThenElse(is_normal, normal, subnormal), hn::And(sign, hn::Set(di, 0x80)));
  }
};
using E4m3Codec = MiniFloatCodec<3, 7, 0x43E00000>;   // 448
using E5m2Codec = MiniFloatCodec<2, 15, 0x47600000>;  // 57344

// Integers, ties to even, clamped to [-kSmallest, kLargest]; kMask cuts the two's complement to the code.
template <int kSmallest, int kLargest, int kMask>
struct IntegerCodec {
  HWY_INLINE VF Level(VF quotient) const {
    const DF d;
    const VF big = hn::Set(d, 12582912.0f);
    const VF clamped = hn::Min(hn::Max(quotient, hn::Set(d, static_cast<float>(-kSmallest))),
                               hn::Set(d, static_cast<float>(kLargest)));
    return hn::Sub(hn::Add(clamped, big), big);
  }

  HWY_INLINE VI Code(VF level) const { return hn::And(hn::ConvertTo(DI(), level), hn::Set(DI(), kMask)); }
};
using Int4Codec = IntegerCodec<8, 7, 15>;
using Int8Codec = IntegerCodec<127, 127, 255>;

// Sum of the lanes in the order of nvfp4_block_error: the upper half is added to the lower one until one is
// left.
template <class D>
HWY_INLINE float SumByHalves(D d, hn::Vec<D> v) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;  // one lane; this target has no halves
#else
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return SumByHalves(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  return hn::GetLane(v);
}

// Squared error of a block of 16, summed in the order of nvfp4_block_error.
HWY_INLINE float Nvfp4BlockError(const E2m1Codec& codec, const float* x, float step) {
  const DF d;
  const VF steps = hn::Set(d, step);
  VF squares[16 / kLanes];
  for (std::int64_t i = 0; i < 16 / kLanes; ++i) {
    const VF value = hn::LoadU(d, x + i * kLanes);
    const VF error = hn::Sub(hn::Mul(codec.Level(hn::Div(value, steps)), steps), value);
    squares[i] = hn::Mul(error, error);
  }
  for (std::int64_t half = 8 / kLanes; half; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) squares[i] = hn::Add(squares[i], squares[i + half]);
  return SumByHalves(d, squares[0]);
}

// Scale code of a block of 16 with that absmax.
HWY_INLINE std::uint8_t Nvfp4Scale(const QuantSpec& spec, DType source, const E2m1Codec& codec,
                                   const float* x, float absmax, float global) {
  const std::uint8_t six = nvfp4_encode_scale(spec.global_scale, absmax, global, source, 6.0f);
  if (spec.scale_search) {
    std::uint8_t best = six;
    float least = 0.0f;
    for (int i = 0; i < kNvfp4SearchScales; ++i) {
      const std::uint8_t code = nvfp4_near_scale(six, nvfp4_search_offset(i));
      const float error = Nvfp4BlockError(codec, x, nvfp4_step(spec.global_scale, code, global));
      if (i > 0 && !(error < least)) continue;
      least = error;
      best = code;
    }
    return best;
  }
  if (!spec.four_six) return six;
  const std::uint8_t four = nvfp4_encode_scale(spec.global_scale, absmax, global, source, 4.0f);
  if (four == six) return six;
  const float four_error = Nvfp4BlockError(codec, x, nvfp4_step(spec.global_scale, four, global));
  const float six_error = Nvfp4BlockError(codec, x, nvfp4_step(spec.global_scale, six, global));
  return four_error < six_error ? four : six;
}

}  // namespace HWY_NAMESPACE
}  // namespace halfbyte
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
