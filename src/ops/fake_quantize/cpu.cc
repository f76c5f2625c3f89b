// fake_quantize on the CPU: rows are shared among threads; each block is read, scaled, rounded and written in
// vectors.
#include <algorithm>
#include <atomic>

#include "formats/int4.h"
#include "formats/int8.h"
#include "formats/mxfp4.h"
#include "formats/mxfp8.h"
#include "ops/fake_quantize/op.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/fake_quantize/cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/quantize/codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halfbyte {
namespace HWY_NAMESPACE {

constexpr std::int32_t kFakeInf = static_cast<std::int32_t>(kInfBits);

template <class Codec>
HWY_INLINE void RoundBlock(const Codec& codec, const float* x, std::int64_t count, float step, float* out) {
  const DF d;
  const VF steps = hn::Set(d, step);
  for (std::int64_t i = 0; i < count; i += kLanes)
    hn::StoreU(hn::Mul(codec.Level(hn::Div(hn::LoadU(d, x + i), steps)), steps), d, out + i);
}

// Calls one(x, out) for every block of a row; a short last block is worked on in a copy padded with zeros.
// One gives false where a value is not finite.
template <class One>
HWY_INLINE bool ForBlocks(const float* x, std::int64_t count, std::int64_t block, float* out, One one) {
  std::int64_t i = 0;
  for (; i + block <= count; i += block)
    if (!one(x + i, out + i)) return false;
  if (i == count) return true;
  HWY_ALIGN float padded[128] = {};
  std::copy_n(x + i, count - i, padded);
  if (!one(padded, padded)) return false;
  std::copy_n(padded, count - i, out + i);
  return true;
}

bool RoundNvfp4(const FakeQuantize& args, float global, const float* x, float* out) {
  const GlobalScaleRule rule = args.spec.global_scale;
  const E2m1Codec codec{nvfp4_keeps_negative_zero(rule)};
  return ForBlocks(x, args.columns, kNvfp4Block, out, [&](const float* in, float* to) HWY_ATTR {
    const std::int32_t bits = AbsmaxBits(in, kNvfp4Block);
    if (bits >= kFakeInf) return false;
    const float absmax = bits_float(static_cast<std::uint32_t>(bits));
    const std::uint8_t scale = Nvfp4Scale(args.spec, DType::f32, codec, in, absmax, global);
    const float step = nvfp4_step(rule, scale, global);
    if (step == 0.0f)
      std::fill_n(to, kNvfp4Block, 0.0f);
    else
      RoundBlock(codec, in, kNvfp4Block, step, to);
    return true;
  });
}

template <class Codec>
HWY_INLINE bool RoundMx(const FakeQuantize& args, const Codec& codec, MxElement element, const float* x,
                        float* out) {
  return ForBlocks(x, args.columns, kMxBlock, out, [&](const float* in, float* to) HWY_ATTR {
    const std::int32_t bits = AbsmaxBits(in, kMxBlock);
    if (bits >= kFakeInf) return false;
    const float absmax = bits_float(static_cast<std::uint32_t>(bits));
    RoundBlock(codec, in, kMxBlock,
               e8m0_decode(mx_encode_scale(args.spec.mx_scale, element, absmax, DType::f32)), to);
    return true;
  });
}

bool RoundMxRow(const FakeQuantize& args, float /*global*/, const float* x, float* out) {
  // On float32 values compressed-tensors differs from the plain codec only in the sign of zero.
  const bool keeps_zero_sign = args.spec.mx_scale != MxScaleRule::compressed_tensors;
  switch (args.spec.format) {
    case Format::mxfp4:
      return RoundMx(args, E2m1Codec{keeps_zero_sign}, kMxE2m1, x, out);
    case Format::mxfp8_e4m3:
      return RoundMx(args, E4m3Codec{}, kMxE4m3, x, out);
    default:
      return RoundMx(args, E5m2Codec{}, kMxE5m2, x, out);
  }
}

bool RoundInt4(const FakeQuantize& args, float /*global*/, const float* x, float* out) {
  const std::int64_t block = effective_block(args.spec, args.columns);
  return ForBlocks(x, args.columns, block, out, [&](const float* in, float* to) HWY_ATTR {
    const std::int32_t bits = AbsmaxBits(in, block);
    if (bits >= kFakeInf) return false;
    RoundBlock(Int4Codec{}, in, block, int4_scale(bits_float(static_cast<std::uint32_t>(bits))), to);
    return true;
  });
}

// Bits of the largest magnitude of a row.
std::int32_t RowAbsmax(const float* x, std::int64_t count) {
  const std::int64_t whole = count / 16 * 16;
  std::int32_t bits = AbsmaxBits(x, whole);
  for (std::int64_t i = whole; i < count; ++i)
    bits = std::max(bits, static_cast<std::int32_t>(float_bits(x[i]) & 0x7FFFFFFFu));
  return bits;
}

bool RoundInt8(const FakeQuantize& args, float /*global*/, const float* x, float* out) {
  const std::int32_t bits = RowAbsmax(x, args.columns);
  if (bits >= kFakeInf) return false;
  const float scale = int8_scale(bits_float(static_cast<std::uint32_t>(bits)));
  return ForBlocks(x, args.columns, 128, out, [&](const float* in, float* to) HWY_ATTR {
    RoundBlock(Int8Codec{}, in, 128, scale, to);
    return true;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace halfbyte
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halfbyte {

namespace {

HWY_EXPORT(RoundNvfp4);
HWY_EXPORT(RoundMxRow);
HWY_EXPORT(RoundInt4);
HWY_EXPORT(RoundInt8);
HWY_EXPORT(RowAbsmax);

using RoundRow = bool (*)(const FakeQuantize&, float global, const float* x, float* out);

RoundRow row_function(Format format) {
  switch (format) {
    case Format::nvfp4:
      return HWY_DYNAMIC_DISPATCH(RoundNvfp4);
    case Format::int4:
      return HWY_DYNAMIC_DISPATCH(RoundInt4);
    case Format::int8:
      return HWY_DYNAMIC_DISPATCH(RoundInt8);
    default:
      return HWY_DYNAMIC_DISPATCH(RoundMxRow);
  }
}

}  // namespace

bool fake_quantize_cpu(const FakeQuantize& args, ThreadPool& pool) {
  if (args.spec.format == Format::mxfp4 && args.spec.mx_scale == MxScaleRule::modelopt)
    return fake_quantize_reference(args, pool);  // its ties have no vector form
  const std::int64_t rows_per_item = std::max<std::int64_t>(1, 32768 / args.columns);
  const std::int64_t items = ceil_div(args.rows, rows_per_item);
  auto for_rows = [&](std::int64_t item, auto row_body) {
    const std::int64_t last = std::min((item + 1) * rows_per_item, args.rows);
    for (std::int64_t row = item * rows_per_item; row < last; ++row) row_body(row);
  };

  float shared = args.global_scale.value_or(1.0f);
  const bool nvfp4 = args.spec.format == Format::nvfp4;
  const bool of_tensor = nvfp4 && !args.global_scale && args.scope == ScaleScope::tensor;
  const bool of_row = nvfp4 && !args.global_scale && args.scope == ScaleScope::row;
  if (of_tensor) {
    std::atomic<std::int32_t> largest = 0;
    pool.parallel_for(items, [&](std::int64_t item) {
      std::int32_t mine = 0;
      for_rows(item, [&](std::int64_t row) {
        mine = std::max(mine, HWY_DYNAMIC_DISPATCH(RowAbsmax)(args.x + row * args.x_stride, args.columns));
      });
      std::int32_t seen = largest.load();
      while (seen < mine && !largest.compare_exchange_weak(seen, mine)) {
      }
    });
    if (static_cast<std::uint32_t>(largest.load()) >= kInfBits) return false;
    shared = nvfp4_global_scale(args.spec.global_scale,
                                bits_float(static_cast<std::uint32_t>(largest.load())), DType::f32);
  }

  std::atomic<bool> finite = true;
  const RoundRow round_row = row_function(args.spec.format);
  pool.parallel_for(items, [&](std::int64_t item) {
    for_rows(item, [&](std::int64_t row) {
      const float* x = args.x + row * args.x_stride;
      float global = shared;
      if (of_row)
        global = nvfp4_global_scale(
            args.spec.global_scale,
            bits_float(static_cast<std::uint32_t>(HWY_DYNAMIC_DISPATCH(RowAbsmax)(x, args.columns))),
            DType::f32);
      if (!round_row(args, global, x, args.out + row * args.out_stride)) finite = false;
    });
  });
  return finite;
}

}  // namespace halfbyte
#endif  // HWY_ONCE
