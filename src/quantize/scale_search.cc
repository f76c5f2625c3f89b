// Scale search: blocks in turn, their candidates' errors in vectors, codes by the codecs.
#include "quantize/scale_search.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/fail.h"
#include "formats/bnb_block.h"
#include "formats/fp4.h"
#include "formats/nf4.h"
#include "formats/packing.h"
#include "ops/quantize/double_quant.h"
#include "ops/quantize/op.h"
#include "ops/simd_targets.h"
#include "quantize/block_scale.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/scale_search.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/quantize/codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halfbyte {
namespace HWY_NAMESPACE {

using DD = hn::CappedTag<double, 8>;
using DHalf = hn::Rebind<float, DD>;
using VD = hn::Vec<DD>;
constexpr std::int64_t kDoubles = static_cast<std::int64_t>(hn::MaxLanes(DD()));

template <class Codec>
struct StepRounding {
  Codec codec;
  VF step;
  HWY_INLINE VF operator()(VF x) const { return hn::Mul(codec.Level(hn::Div(x, step)), step); }
};

// NF4 and FP4: the level above every threshold that lies below the value.
struct ThresholdRounding {
  VF thresholds[15], levels[16], factor, absmax;
  bool divides;

  explicit ThresholdRounding(bool nf4) {
    const DF d;
    for (int i = 0; i < 15; ++i) thresholds[i] = hn::Set(d, nf4 ? nf4_threshold(i) : fp4_threshold(i));
    for (int i = 0; i < 16; ++i)
      levels[i] = hn::Set(d, nf4 ? nf4_decode(static_cast<std::uint8_t>(i)) : fp4_decode(fp4_code_at(i)));
  }
  HWY_INLINE void SetScale(const BlockScale& scale) {
    const BnbScale bnb = bnb_scale(scale.value, !scale.divides);
    factor = hn::Set(DF(), bnb.factor);
    absmax = hn::Set(DF(), scale.value);
    divides = bnb.divides;
  }
  HWY_INLINE VF operator()(VF x) const {
    const DF d;
    const VF scaled = divides ? hn::Div(x, factor) : hn::Mul(x, factor);
    const VF value = hn::Min(hn::Max(scaled, hn::Set(d, -1.0f)), hn::Set(d, 1.0f));
    VF level = levels[0];
    for (int i = 0; i < 15; ++i) level = hn::IfThenElse(hn::Gt(value, thresholds[i]), levels[i + 1], level);
    return hn::Mul(level, absmax);
  }
};

// Sum of importance * (rounded x - x)^2 over count elements, a multiple of 16. Errors are float32, their squares and all that
// follows double. The order is fixed: sixteen sums of every sixteenth element, then sum i meets i + 8, i + 4, i + 2, i + 1.
template <class Rounding>
HWY_INLINE double WeightedError(const Rounding& rounding, const SearchBlock& block) {
  const DF d;
  const DD dd;
  VD sums[16 / kDoubles];
  for (VD& sum : sums) sum = hn::Zero(dd);
  HWY_ALIGN float errors[16];
  for (std::int64_t i = 0; i < block.padded; i += 16) {
    for (std::int64_t j = 0; j < 16; j += kLanes) {
      const VF x = hn::LoadU(d, block.x + i + j);
      hn::Store(hn::Sub(rounding(x), x), d, errors + j);
    }
    for (std::int64_t j = 0; j < 16; j += kDoubles) {
      const VD error = hn::PromoteTo(dd, hn::LoadU(DHalf(), errors + j));
      const VD weight = hn::PromoteTo(dd, hn::LoadU(DHalf(), block.importance + i + j));
      VD& sum = sums[j / kDoubles];
      sum = hn::Add(sum, hn::Mul(hn::Mul(error, error), weight));
    }
  }
  for (std::int64_t half = 8 / kDoubles; half; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) sums[i] = hn::Add(sums[i], sums[i + half]);
  HWY_ALIGN double lanes[kDoubles];
  hn::Store(sums[0], dd, lanes);
  for (std::int64_t half = kDoubles / 2; half; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// Index of the candidate with the least error(candidate), the first of equals.
template <class Error>
HWY_INLINE int Least(const SearchBlock& block, const Error& error) {
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < block.candidates->count; ++i) {
    const BlockScale& scale = block.candidates->scales[static_cast<std::size_t>(i)];
    if (scale.value == 0.0f) continue;
    const double found = error(scale);
    if (found < least) {
      least = found;
      best = i;
    }
  }
  return best;
}

template <class Codec>
HWY_INLINE int LeastByStep(const SearchBlock& block, const Codec& codec) {
  return Least(block, [&](const BlockScale& scale) HWY_ATTR {
    return WeightedError(StepRounding<Codec>{codec, hn::Set(DF(), scale.value)}, block);
  });
}

int BestCandidate(const SearchBlock& block) {
  switch (block.format) {
    case Format::nf4:
    case Format::fp4: {
      ThresholdRounding rounding(block.format == Format::nf4);
      return Least(block, [&](const BlockScale& scale) HWY_ATTR {
        rounding.SetScale(scale);
        return WeightedError(rounding, block);
      });
    }
    case Format::nvfp4:
    case Format::mxfp4:
      return LeastByStep(block, E2m1Codec{true});
    case Format::mxfp8_e4m3:
      return LeastByStep(block, E4m3Codec{});
    case Format::mxfp8_e5m2:
      return LeastByStep(block, E5m2Codec{});
    case Format::int4:
      return LeastByStep(block, Int4Codec{});
    case Format::int8:
      return LeastByStep(block, Int8Codec{});
    case Format::bf16:
      break;
  }
  return 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace halfbyte
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halfbyte {

namespace {

HWY_EXPORT(BestCandidate);

// A tensor as runs of whole blocks that are worked on and packed alone: its rows, or pieces of a flat tensor.
struct Runs {
  std::int64_t elements, length, block, count, blocks;  // blocks of a run

  Runs(const QuantSpec& spec, const Extent& extent) : elements(extent.elements()) {
    constexpr std::int64_t kPiece = 1 << 16;  // a multiple of every block size
    length = format_info(spec.format).axis == BlockAxis::flat ? kPiece : extent.columns;
    block = std::max<std::int64_t>(1, effective_block(spec, extent.columns));
    count = length ? ceil_div(elements, length) : 0;
    blocks = ceil_div(length, block);
  }

  // Calls body(block of the tensor, its first element, how many) for each block of a run.
  template <class Body>
  void for_blocks(std::int64_t run, const Body& body) const {
    const std::int64_t first = run * length, last = std::min(first + length, elements);
    for (std::int64_t at = first, b = run * blocks; at < last; at += block, ++b)
      body(b, at, std::min(block, last - at));
  }
};

void check(std::span<const float> w, const Extent& extent, const ScaleSearch& search) {
  validate(search.spec);
  if (format_info(search.spec.format).scale == ScaleKind::none)
    fail_input("{}: {} has no scales to search", search.name, format_name(search.spec.format));
  if (static_cast<std::int64_t>(w.size()) != extent.elements())
    fail_input("{}: {} weights, expected {} x {}", search.name, w.size(), extent.rows, extent.columns);
  for (std::size_t i = 0; i < w.size(); ++i)
    if (!is_finite(w[i]))
      fail_input("{}: the weight in row {}, column {} is {} and cannot be quantized", search.name,
                 i / static_cast<std::size_t>(extent.columns), i % static_cast<std::size_t>(extent.columns),
                 w[i]);
  if (search.importance.empty()) return;
  if (static_cast<std::int64_t>(search.importance.size()) != extent.columns)
    fail_input("{}: {} importances for {} columns", search.name, search.importance.size(), extent.columns);
  for (std::size_t k = 0; k < search.importance.size(); ++k)
    if (!(search.importance[k] >= 0.0f) || !is_finite(search.importance[k]))
      fail_input("{}: the importance of column {} is {}, expected a finite number that is not negative",
                 search.name, k, search.importance[k]);
}

void encode(std::span<const float> w, const Extent& extent, QuantizedTensor& out, ThreadPool& pool) {
  const Runs runs(out.spec, extent);
  const BlockCodec codec(out);
  const std::int64_t run_bytes =
      format_info(out.spec.format).bits == 8 ? runs.length : packed_bytes(runs.length);
  pool.parallel_for(runs.count, [&](std::int64_t run) {
    std::vector<std::uint8_t> codes(
        static_cast<std::size_t>(std::min(runs.length, runs.elements - run * runs.length)));
    runs.for_blocks(run, [&](std::int64_t block, std::int64_t first, std::int64_t count) {
      const BlockScale scale = stored_scale(out, block, count == runs.block);
      for (std::int64_t i = first; i < first + count; ++i)
        codes[static_cast<std::size_t>(i - run * runs.length)] =
            codec.encode(w[static_cast<std::size_t>(i)], scale);
    });
    pack_codes(out.spec.format, codes, out.codes.data() + run * run_bytes);
  });
}

}  // namespace

float search_global_scale(GlobalScaleRule rule, float amax, DType source) {
  return nvfp4_global_scale(rule, std::min(amax, std::numeric_limits<float>::max() / 1.75f) * 1.75f, source);
}

QuantizedTensor choose_scales(std::span<const float> w, const Shape& shape, const ScaleSearch& search,
                              ThreadPool& pool) {
  const Extent extent = extent_of(shape);
  check(w, extent, search);
  QuantizedTensor out = make_quantized(search.spec, shape, DType::f32);
  if (search.spec.format == Format::nvfp4) {
    const GlobalScaleRule rule = search.spec.global_scale;
    if (search.global_scale && !nvfp4_is_global_scale(rule, *search.global_scale))
      fail_input("{}: {} cannot be a global scale; it must be positive and its steps finite", search.name,
                 *search.global_scale);
    const TensorView view{.dtype = DType::f32, .shape = shape, .data = std::as_bytes(w)};
    out.global_scale = search.global_scale ? *search.global_scale
                                           : search_global_scale(rule, tensor_absmax(view, pool), DType::f32);
  }
  const BlockCodec codec(out);
  const Runs runs(search.spec, extent);
  if (runs.count == 0) {
    // Rows of no columns have a scale too.
    for (std::int64_t b = 0; b < out.scales.size(); ++b)
      store_scale(out, b, codec.candidates(0.0f, true).scales[0]);
    return out;
  }
  if (search.spec.double_quant) out.scales = Array<float>(part_sizes(search.spec, shape).blocks);
  pool.parallel_for(runs.count, [&](std::int64_t run) {
    const auto room = static_cast<std::size_t>(round_up(runs.block, 16));
    std::vector<float> x(room), importance(room, 1.0f);
    runs.for_blocks(run, [&](std::int64_t block, std::int64_t first, std::int64_t count) {
      float absmax = 0.0f;
      std::int64_t column = first % extent.columns;
      for (std::int64_t i = 0; i < count; ++i) {
        const float value = w[static_cast<std::size_t>(first + i)];
        x[static_cast<std::size_t>(i)] = value;
        absmax = std::max(absmax, abs_value(value));
        if (!search.importance.empty())
          importance[static_cast<std::size_t>(i)] = search.importance[static_cast<std::size_t>(column)];
        if (++column == extent.columns) column = 0;
      }
      const std::int64_t padded = round_up(count, 16);
      std::fill(x.begin() + count, x.begin() + padded, 0.0f);
      const ScaleCandidates candidates = codec.candidates(absmax, count == runs.block);
      const int best = HWY_DYNAMIC_DISPATCH(BestCandidate)({.format = search.spec.format,
                                                            .candidates = &candidates,
                                                            .x = x.data(),
                                                            .importance = importance.data(),
                                                            .padded = padded});
      store_scale(out, block, candidates.scales[static_cast<std::size_t>(best)]);
    });
  });
  if (search.spec.double_quant) {
    double_quantize(out.scales.span(), out);
    out.scales = Array<float>();
  }
  return out;
}

QuantizedTensor search_scales(std::span<const float> w, const Shape& shape, const ScaleSearch& search,
                              ThreadPool& pool) {
  QuantizedTensor out = choose_scales(w, shape, search, pool);
  encode(w, extent_of(shape), out, pool);
  return out;
}

}  // namespace halfbyte
#endif  // HWY_ONCE
