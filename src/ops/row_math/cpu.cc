#include <cmath>

#include "ops/row_math/op.h"

// foreach_target.h compiles this file once a target and must come before the rest of Highway.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/row_math/cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace halfbyte {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Below this the float result is 0 or denormal and Highway's Exp would leave its range.
constexpr float kSmallestExponent = -87.0f;

HWY_INLINE V exp_or_zero(D d, V x) {
  const V low = hn::Set(d, kSmallestExponent);
  return hn::IfThenElseZero(hn::Ge(x, low), hn::Exp(d, hn::Max(x, low)));
}

float RowMax(const float* x, std::int64_t n) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  float best = x[0];
  std::int64_t i = 0;
  if (n >= lanes) {
    V largest = hn::LoadU(d, x);
    for (i = lanes; i + lanes <= n; i += lanes) largest = hn::Max(largest, hn::LoadU(d, x + i));
    best = hn::GetLane(hn::MaxOfLanes(d, largest));
  }
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// Runs one(vector at i) over full vectors and a zero-padded copy of the tail; keep tells how many lanes
// count.
template <class F>
HWY_INLINE void for_each_vector(D d, std::int64_t n, F&& one) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) one(i, lanes);
  if (i < n) one(i, n - i);
}

HWY_INLINE V load_part(D d, const float* x, std::int64_t keep) {
  if (keep == static_cast<std::int64_t>(hn::Lanes(d))) return hn::LoadU(d, x);
  HWY_ALIGN float buffer[hn::MaxLanes(d)] = {};
  for (std::int64_t i = 0; i < keep; ++i) buffer[i] = x[i];
  return hn::Load(d, buffer);
}

HWY_INLINE void store_part(D d, V value, float* x, std::int64_t keep) {
  if (keep == static_cast<std::int64_t>(hn::Lanes(d))) return hn::StoreU(value, d, x);
  HWY_ALIGN float buffer[hn::MaxLanes(d)];
  hn::Store(value, d, buffer);
  for (std::int64_t i = 0; i < keep; ++i) x[i] = buffer[i];
}

// Adds up to 64 vectors in float, then moves the sum to double: rows of 100,000 logits keep seven digits.
class Sum {
 public:
  HWY_INLINE explicit Sum(D d) : partial_(hn::Zero(d)) {}
  HWY_INLINE void add(D d, V value) {
    partial_ = hn::Add(partial_, value);
    if (++count_ == 64) flush(d);
  }
  HWY_INLINE double total(D d) {
    flush(d);
    return total_;
  }

 private:
  HWY_INLINE void flush(D d) {
    HWY_ALIGN float lanes[hn::MaxLanes(d)];
    hn::Store(partial_, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) total_ += static_cast<double>(lanes[i]);
    partial_ = hn::Zero(d);
    count_ = 0;
  }
  V partial_;
  double total_ = 0;
  int count_ = 0;
};

HWY_INLINE V first_lanes_only(D d, V value, std::int64_t keep) {
  return hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(keep)), value);
}

double ExpRow(float* x, std::int64_t n, float scale, float shift) {
  const D d;
  const V scales = hn::Set(d, scale), shifts = hn::Set(d, shift);
  Sum sum(d);
  for_each_vector(d, n, [&](std::int64_t i, std::int64_t keep) HWY_ATTR {
    const V e = exp_or_zero(d, hn::Sub(hn::Mul(load_part(d, x + i, keep), scales), shifts));
    store_part(d, e, x + i, keep);
    sum.add(d, first_lanes_only(d, e, keep));
  });
  return sum.total(d);
}

double LogSumExp(const float* x, std::int64_t n) {
  const D d;
  const float largest = RowMax(x, n);
  const V shift = hn::Set(d, largest);
  Sum sum(d);
  for_each_vector(d, n, [&](std::int64_t i, std::int64_t keep) HWY_ATTR {
    sum.add(d, first_lanes_only(d, exp_or_zero(d, hn::Sub(load_part(d, x + i, keep), shift)), keep));
  });
  return static_cast<double>(largest) + std::log(sum.total(d));
}

double KlDivergence(const float* p, double p_lse, const float* q, double q_lse, std::int64_t n) {
  const D d;
  const V p_shift = hn::Set(d, static_cast<float>(p_lse)), q_shift = hn::Set(d, static_cast<float>(q_lse));
  Sum sum(d);
  for_each_vector(d, n, [&](std::int64_t i, std::int64_t keep) HWY_ATTR {
    const V log_p = hn::Sub(load_part(d, p + i, keep), p_shift);
    const V log_q = hn::Sub(load_part(d, q + i, keep), q_shift);
    const V term = hn::Mul(exp_or_zero(d, log_p), hn::Sub(log_p, log_q));
    sum.add(d, first_lanes_only(d, term, keep));
  });
  return sum.total(d);
}

void SiluMulRow(const float* gate, const float* up, float* out, std::int64_t n) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  for_each_vector(d, n, [&](std::int64_t i, std::int64_t keep) HWY_ATTR {
    const V g = load_part(d, gate + i, keep);
    // exp(-g) above exp(87) would overflow; silu is then below 1e-35 times g, which float shows as good as
    // zero.
    const V e = hn::Exp(d, hn::Min(hn::Neg(g), hn::Set(d, 87.0f)));
    store_part(d, hn::Mul(hn::Div(g, hn::Add(one, e)), load_part(d, up + i, keep)), out + i, keep);
  });
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace halfbyte
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halfbyte {

HWY_EXPORT(RowMax);
HWY_EXPORT(ExpRow);
HWY_EXPORT(LogSumExp);
HWY_EXPORT(KlDivergence);
HWY_EXPORT(SiluMulRow);
HWY_EXPORT(TargetName);

float row_max(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(RowMax)(x, n); }
double exp_row(float* x, std::int64_t n, float scale, float shift) {
  return HWY_DYNAMIC_DISPATCH(ExpRow)(x, n, scale, shift);
}
double log_sum_exp(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(LogSumExp)(x, n); }
double kl_divergence(const float* p, double p_lse, const float* q, double q_lse, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(KlDivergence)(p, p_lse, q, q_lse, n);
}
void silu_mul_row(const float* gate, const float* up, float* out, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(SiluMulRow)(gate, up, out, n);
}
const char* row_math_target() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

std::int64_t row_argmax(const float* x, std::int64_t n) {
  const float largest = row_max(x, n);
  std::int64_t i = 0;
  while (i < n && x[i] != largest) ++i;
  return i;
}

TokenScore score_token(const float* logits, const float* reference, std::int32_t target, std::int64_t vocab) {
  TokenScore score;
  const double lse = log_sum_exp(logits, vocab);
  score.nll = lse - static_cast<double>(logits[target]);
  if (reference) {
    score.kl = kl_divergence(reference, log_sum_exp(reference, vocab), logits, lse, vocab);
    score.agreed = row_argmax(reference, vocab) == row_argmax(logits, vocab) ? 1 : 0;
  }
  return score;
}

}  // namespace halfbyte
#endif
