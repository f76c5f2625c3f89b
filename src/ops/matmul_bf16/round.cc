#include "ops/matmul_bf16/round.h"

#include "formats/bf16.h"
#include "ops/simd_targets.h"

// foreach_target.h compiles this file once a target and must come before the rest of Highway.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/matmul_bf16/round.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace halfbyte {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void EncodeBf16Row(const float* x, std::uint16_t* out, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto odd = hn::Set(du, 1u), almost_half = hn::Set(du, 0x7FFFu);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto value = hn::LoadU(d, x + i);
    if (!hn::AllFalse(d, hn::IsNaN(value))) {
      for (std::int64_t j = i; j < i + lanes; ++j) out[j] = bf16_encode(x[j]);
      continue;
    }
    const auto bits = hn::BitCast(du, value);
    const auto rounded = hn::Add(hn::Add(bits, almost_half), hn::And(hn::ShiftRight<16>(bits), odd));
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(di, hn::ShiftRight<16>(rounded))), half, out + i);
  }
  for (; i < n; ++i) out[i] = bf16_encode(x[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace halfbyte
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halfbyte {

HWY_EXPORT(EncodeBf16Row);

void encode_bf16_row(const float* x, std::uint16_t* out, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(EncodeBf16Row)(x, out, n);
}

}  // namespace halfbyte
#endif  // HWY_ONCE
