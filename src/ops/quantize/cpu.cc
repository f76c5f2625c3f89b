// quantize on the CPU: rows or runs of blocks are shared among threads, values are encoded in vectors.
#include <algorithm>
#include <atomic>

#include "formats/bnb_block.h"
#include "formats/fp4.h"
#include "formats/int4.h"
#include "formats/int8.h"
#include "formats/mxfp4.h"
#include "formats/mxfp8.h"
#include "formats/nf4.h"
#include "formats/packing.h"
#include "ops/quantize/op.h"
#include "ops/quantize/segment.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantize/cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/quantize/codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halfbyte {
namespace HWY_NAMESPACE {

constexpr std::int32_t kInf = static_cast<std::int32_t>(kInfBits);

template <class Codec>
HWY_INLINE void EncodeBlock(const Codec& codec, const float* x, std::int64_t count, float step,
                            std::uint8_t* codes) {
  const DF d;
  const VF steps = hn::Set(d, step);
  for (std::int64_t i = 0; i < count; i += kLanes)
    StoreCodes(codec.Code(codec.Level(hn::Div(hn::LoadU(d, x + i), steps))), codes + i);
}

bool EncodeNvfp4(const QuantizeSegment& segment) {
  const QuantSpec& spec = *segment.spec;
  const E2m1Codec codec{nvfp4_keeps_negative_zero(spec.global_scale)};
  for (std::int64_t i = 0; i < segment.count; i += kNvfp4Block) {
    const float* x = segment.x + i;
    const std::int32_t bits = AbsmaxBits(x, kNvfp4Block);
    if (bits >= kInf) return false;
    const float absmax = bits_float(static_cast<std::uint32_t>(bits));
    const std::uint8_t scale = Nvfp4Scale(spec, segment.source, codec, x, absmax, segment.global);
    segment.scales8[i / kNvfp4Block] = scale;
    const float step = nvfp4_step(spec.global_scale, scale, segment.global);
    if (step == 0.0f)
      std::fill_n(segment.codes + i, kNvfp4Block, std::uint8_t{0});
    else
      EncodeBlock(codec, x, kNvfp4Block, step, segment.codes + i);
  }
  return true;
}

template <class Codec>
bool EncodeMx(const QuantizeSegment& segment, const Codec& codec, MxElement element) {
  for (std::int64_t i = 0; i < segment.count; i += kMxBlock) {
    const std::int32_t bits = AbsmaxBits(segment.x + i, kMxBlock);
    if (bits >= kInf) return false;
    const float absmax = bits_float(static_cast<std::uint32_t>(bits));
    const std::uint8_t scale = mx_encode_scale(segment.spec->mx_scale, element, absmax, segment.source);
    segment.scales8[i / kMxBlock] = scale;
    EncodeBlock(codec, segment.x + i, kMxBlock, e8m0_decode(scale), segment.codes + i);
  }
  return true;
}

bool EncodeMxfp4(const QuantizeSegment& segment) { return EncodeMx(segment, E2m1Codec{true}, kMxE2m1); }
bool EncodeMxfp8(const QuantizeSegment& segment) {
  return segment.spec->format == Format::mxfp8_e4m3 ? EncodeMx(segment, E4m3Codec{}, kMxE4m3)
                                                    : EncodeMx(segment, E5m2Codec{}, kMxE5m2);
}

bool EncodeInt4(const QuantizeSegment& segment) {
  for (std::int64_t i = 0; i < segment.count; i += segment.block) {
    const std::int32_t bits = AbsmaxBits(segment.x + i, segment.block);
    if (bits >= kInf) return false;
    const float scale = int4_scale(bits_float(static_cast<std::uint32_t>(bits)));
    segment.scales[i / segment.block] = scale;
    EncodeBlock(Int4Codec{}, segment.x + i, segment.block, scale, segment.codes + i);
  }
  return true;
}

bool EncodeInt8(const QuantizeSegment& segment) {
  EncodeBlock(Int8Codec{}, segment.x, segment.count, segment.scales[0], segment.codes);
  return true;
}

// NF4 and FP4: the rank of a value among the levels is the number of thresholds below it.
bool EncodeBnb(const QuantizeSegment& segment) {
  const DF d;
  const DI di;
  const bool nf4 = segment.spec->format == Format::nf4;
  VF thresholds[15];
  for (int t = 0; t < 15; ++t) thresholds[t] = hn::Set(d, nf4 ? nf4_threshold(t) : fp4_threshold(t));
  const VF one = hn::Set(d, 1.0f), minus_one = hn::Set(d, -1.0f);
  for (std::int64_t i = 0; i < segment.count; i += segment.block) {
    const std::int64_t count = std::min(segment.block, segment.count - i);
    const std::int32_t bits = AbsmaxBits(segment.x + i, round_up(count, 16));
    if (bits >= kInf) return false;
    const BnbScale scale = bnb_scale(bits_float(static_cast<std::uint32_t>(bits)), count == segment.block);
    segment.scales[i / segment.block] = scale.stored;
    const VF factor = hn::Set(d, scale.factor);
    for (std::int64_t j = i; j < i + count; j += kLanes) {
      const VF x = hn::LoadU(d, segment.x + j);
      const VF scaled = scale.divides ? hn::Div(x, factor) : hn::Mul(x, factor);
      const VF value = hn::Min(hn::Max(scaled, minus_one), one);
      VI rank = hn::Zero(di);
      for (int t = 0; t < 15; ++t)
        rank = hn::Sub(rank, hn::VecFromMask(di, hn::RebindMask(di, hn::Gt(value, thresholds[t]))));
      StoreCodes(rank, segment.codes + j);
    }
  }
  if (!nf4)
    for (std::int64_t i = 0; i < segment.count; ++i) segment.codes[i] = fp4_code_at(segment.codes[i]);
  return true;
}

std::int32_t Absmax(const float* x, std::int64_t count) { return AbsmaxBits(x, round_up(count, 16)); }

}  // namespace HWY_NAMESPACE
}  // namespace halfbyte
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halfbyte {

namespace {

HWY_EXPORT(EncodeNvfp4);
HWY_EXPORT(EncodeMxfp4);
HWY_EXPORT(EncodeMxfp8);
HWY_EXPORT(EncodeInt4);
HWY_EXPORT(EncodeInt8);
HWY_EXPORT(EncodeBnb);
HWY_EXPORT(Absmax);

constexpr std::int64_t kItem = 16 * kSegment;  // elements of a work item

// The MX rules whose rounding of values differs from the plain codec.
bool encode_mx_scalar(const QuantizeSegment& segment) {
  const QuantSpec& spec = *segment.spec;
  const bool four_bits = spec.format == Format::mxfp4, e4m3 = spec.format == Format::mxfp8_e4m3;
  const MxElement element = four_bits ? kMxE2m1 : e4m3 ? kMxE4m3 : kMxE5m2;
  for (std::int64_t first = 0; first < segment.count; first += kMxBlock) {
    const std::int64_t last = std::min(first + kMxBlock, segment.count);
    std::uint32_t bits = 0;
    for (std::int64_t i = first; i < last; ++i) bits = std::max(bits, float_bits(segment.x[i]) & 0x7FFFFFFFu);
    if (bits >= kInfBits) return false;
    const std::uint8_t code = mx_encode_scale(spec.mx_scale, element, bits_float(bits), segment.source);
    segment.scales8[first / kMxBlock] = code;
    const float scale = e8m0_decode(code);
    for (std::int64_t i = first; i < last; ++i)
      segment.codes[i] = four_bits ? mxfp4_encode(spec.mx_scale, segment.x[i], scale, segment.source)
                         : e4m3    ? mxfp8_e4m3_encode(spec.mx_scale, segment.x[i], scale, segment.source)
                                   : mxfp8_e5m2_encode(spec.mx_scale, segment.x[i], scale, segment.source);
  }
  return true;
}

bool encode(const QuantizeSegment& segment) {
  const MxScaleRule rule = segment.spec->mx_scale;
  const bool plain_mx = rule != MxScaleRule::compressed_tensors && rule != MxScaleRule::modelopt;
  switch (segment.spec->format) {
    case Format::nf4:
    case Format::fp4:
      return HWY_DYNAMIC_DISPATCH(EncodeBnb)(segment);
    case Format::nvfp4:
      return HWY_DYNAMIC_DISPATCH(EncodeNvfp4)(segment);
    case Format::mxfp4:
      return plain_mx ? HWY_DYNAMIC_DISPATCH(EncodeMxfp4)(segment) : encode_mx_scalar(segment);
    case Format::mxfp8_e4m3:
    case Format::mxfp8_e5m2:
      return plain_mx ? HWY_DYNAMIC_DISPATCH(EncodeMxfp8)(segment) : encode_mx_scalar(segment);
    case Format::int4:
      return HWY_DYNAMIC_DISPATCH(EncodeInt4)(segment);
    case Format::int8:
      return HWY_DYNAMIC_DISPATCH(EncodeInt8)(segment);
    case Format::bf16:
      break;
  }
  return false;
}

// Elements [first, first + count) as float32, then zeros: a segment and the padding of its last block.
struct Values {
  HWY_ALIGN float x[kSegment];

  void load_from(const TensorView& values, std::int64_t first, std::int64_t count) {
    const std::byte* bytes = values.data.data() + first * dtype_bytes(values.dtype);
    if (values.dtype == DType::f32) {
      std::memcpy(x, bytes, static_cast<std::size_t>(count) * sizeof(float));
    } else if (values.dtype == DType::bf16) {
      for (std::int64_t i = 0; i < count; ++i) x[i] = bf16_decode(load<std::uint16_t>(bytes, i));
    } else {
      for (std::int64_t i = 0; i < count; ++i) x[i] = fp16_decode(load<std::uint16_t>(bytes, i));
    }
    std::fill(x + count, x + std::min(kSegment, round_up(count, 128)), 0.0f);
  }
};

// Quantizes elements [first, last) of the tensor, a row or part of a flat tensor; `codes` and `block` are
// where its packed codes and its scales begin.
bool encode_run(const Quantize& args, std::int64_t first, std::int64_t last, std::uint8_t* codes,
                std::int64_t block) {
  QuantizedTensor& out = *args.out;
  const FormatInfo& info = format_info(out.spec.format);
  Values values;
  HWY_ALIGN std::uint8_t unpacked[kSegment];
  QuantizeSegment segment{.spec = &out.spec,
                          .source = out.source,
                          .global = out.global_scale,
                          .x = values.x,
                          .count = 0,
                          .block = effective_block(out.spec, args.extent.columns),
                          .codes = unpacked,
                          .scales8 = nullptr,
                          .scales = nullptr};
  if (info.axis == BlockAxis::whole_row) {
    std::int32_t bits = 0;
    for (std::int64_t at = first; at < last; at += kSegment) {
      const std::int64_t count = std::min(kSegment, last - at);
      values.load_from(args.values, at, count);
      bits = std::max(bits, HWY_DYNAMIC_DISPATCH(Absmax)(values.x, count));
    }
    if (static_cast<std::uint32_t>(bits) >= kInfBits) return false;
    out.scales[block] = int8_scale(bits_float(static_cast<std::uint32_t>(bits)));
  }
  for (std::int64_t at = first; at < last; at += kSegment) {
    segment.count = std::min(kSegment, last - at);
    values.load_from(args.values, at, segment.count);
    const std::int64_t done = info.axis == BlockAxis::whole_row ? 0 : (at - first) / segment.block;
    segment.scales8 =
        out.scales8.data() +
        (info.scale == ScaleKind::e8m0 || info.scale == ScaleKind::e4m3_and_global ? block + done : 0);
    segment.scales = out.scales.data() +
                     (info.scale == ScaleKind::f32 || info.scale == ScaleKind::absmax_f32 ? block + done : 0);
    if (!encode(segment)) return false;
    if (info.bits == 8)
      std::copy_n(unpacked, segment.count, codes + (at - first));
    else
      pack_nibbles(info.axis == BlockAxis::flat ? NibbleOrder::high_first : NibbleOrder::low_first, unpacked,
                   segment.count, codes + (at - first) / 2, out.spec.format == Format::nf4 ? kNf4Zero : 0);
  }
  return true;
}

}  // namespace

bool quantize_cpu(const Quantize& args) {
  QuantizedTensor& out = *args.out;
  const FormatInfo& info = format_info(out.spec.format);
  std::atomic<bool> finite = true;
  if (info.axis == BlockAxis::flat) {
    const std::int64_t elements = args.extent.elements(),
                       block = effective_block(out.spec, args.extent.columns);
    args.pool->parallel_for(ceil_div(elements, kItem), [&](std::int64_t item) {
      const std::int64_t first = item * kItem, last = std::min(first + kItem, elements);
      if (!encode_run(args, first, last, out.codes.data() + first / 2, first / block)) finite = false;
    });
    return finite;
  }
  const std::int64_t columns = args.extent.columns,
                     rows_per_item = std::max<std::int64_t>(1, kItem / std::max<std::int64_t>(1, columns));
  const std::int64_t row_bytes = info.bits == 8 ? columns : packed_bytes(columns);
  const std::int64_t row_blocks =
      info.axis == BlockAxis::whole_row ? 1 : ceil_div(columns, effective_block(out.spec, columns));
  args.pool->parallel_for(ceil_div(args.extent.rows, rows_per_item), [&](std::int64_t item) {
    const std::int64_t last = std::min((item + 1) * rows_per_item, args.extent.rows);
    for (std::int64_t row = item * rows_per_item; row < last; ++row)
      if (!encode_run(args, row * columns, (row + 1) * columns, out.codes.data() + row * row_bytes,
                      row * row_blocks))
        finite = false;
  });
  return finite;
}

}  // namespace halfbyte
#endif  // HWY_ONCE
