// Device code of quantize: values in, codes and scales out. Fast kernels for whole blocks, which share a block among
// neighbouring threads; and one thread a block for everything rare (short blocks, rules that need the codec's own path).
#pragma once

#include <cstdint>

#include "formats/bnb_block.h"
#include "formats/int4.h"
#include "formats/int8.h"
#include "formats/mxfp4.h"
#include "formats/mxfp8.h"
#include "formats/nvfp4.h"
#include "ops/quantize/cuda_params.h"
#include "ops/quantize/fast_codes.h"
#include "ops/quantize/kernel_e2m1.cuh"

namespace halfbyte::cuda {

// ---- encoders: begin() finds a block's scale (writing it where `first`), encode() eight codes ---------------------------

template <class Scale>
__device__ __forceinline__ bool is_quick(const Scale&) {
  return true;
}
__device__ __forceinline__ float divisor_of(const QuickScale& scale) { return scale.scale; }
template <class Scale>
__device__ __forceinline__ float divisor_of(const Scale&) {
  return 0.0f;
}

// Scaling of NF4 and FP4; not quick where 15 factor overflows (absmax below 4.5e-38, a block of zeros) or absmax is no
// number.
struct BnbQuick {
  float factor, fifteens;
};
__device__ __forceinline__ bool is_quick(const BnbQuick& scale) {
  return scale.factor > 0.0f && is_finite(scale.fifteens);
}
__device__ __forceinline__ float divisor_of(const BnbQuick& scale) { return scale.factor; }

// count values from element `begin` on by the codec itself, for blocks whose scale is so small or large that
// quick_quotient() does not hold. It reads them anew: a call with few arguments keeps the fast path small.
template <class In>
__device__ __noinline__ void rare_codes(const QuantizeParams& p, std::int64_t begin, int count, float scale) {
  for (int i = 0; i < count; i += 2) {
    const float a = In::element(p.values, begin + i), b = In::element(p.values, begin + i + 1);
    if (p.format == Format::nf4 || p.format == Format::fp4) {
      const BnbScale bnb{.stored = 0.0f, .factor = scale, .divides = false};
      const float v = bnb_normalise(bnb, a), w = bnb_normalise(bnb, b);
      p.codes[(begin + i) / 2] = p.format == Format::nf4
                                     ? static_cast<std::uint8_t>(nf4_encode(v) << 4 | nf4_encode(w))
                                     : static_cast<std::uint8_t>(fp4_encode(v) << 4 | fp4_encode(w));
    } else if (p.format == Format::int8) {
      p.codes[begin + i] = int8_encode(a, scale);
      p.codes[begin + i + 1] = int8_encode(b, scale);
    } else if (p.format == Format::int4) {
      p.codes[(begin + i) / 2] =
          static_cast<std::uint8_t>(int4_encode(a, scale) | int4_encode(b, scale) << 4);
    } else {
      p.codes[(begin + i) / 2] = static_cast<std::uint8_t>(
          nvfp4_encode(GlobalScaleRule::amax, a, scale) | nvfp4_encode(GlobalScaleRule::amax, b, scale) << 4);
    }
  }
}

template <class Buckets, class In>
struct EncodeBnb {  // nf4, fp4
  using Word = std::uint32_t;
  using Table = BucketTable;
  using Scale = BnbQuick;
  __device__ static void fill(Table& table, const QuantizeParams& p) {
    if (threadIdx.x < 32) {
      table.threshold[threadIdx.x] = p.buckets.threshold[threadIdx.x];
      table.rank[threadIdx.x] = p.buckets.rank[threadIdx.x];
    }
  }
  __device__ static Scale begin(const QuantizeParams&, float absmax, float* scale, std::uint8_t*,
                                bool first) {
    const BnbScale bnb = bnb_scale(absmax, true);
    if (first) *scale = bnb.stored;
    return {bnb.factor, mul_rn(bnb.factor, 15.0f)};
  }
  __device__ static Word encode(const Table& table, const QuantizeParams&, const Scale& scale,
                                const float (&x)[8]) {
    // Byte 3 first, its upper nibble first. No clamp: all thresholds lie inside (-1, 1).
    return eight_codes<Buckets>(table, {x[6], x[7], x[4], x[5], x[2], x[3], x[0], x[1]}, scale.factor,
                                scale.fifteens);
  }
};

template <class In, bool kPow2>
struct EncodeNvfp4 {  // rules pow2 and amax, which differ in the global scale alone
  using Word = std::uint32_t;
  struct Table {};
  using Scale = QuickScale;
  __device__ static void fill(Table&, const QuantizeParams&) {}
  __device__ static Scale begin(const QuantizeParams& p, float absmax, float*, std::uint8_t* scale8,
                                bool first) {
    const float global = __ldg(p.global_scale);
    const std::uint8_t code = nvfp4_scale_code(absmax, global, kPow2);
    if (first) *scale8 = code;
    const float step = nvfp4_step(GlobalScaleRule::amax, code, global);
    if (kPow2 && In::kDType != DType::f32)
      return {step, rough_inverse(step), quick_quotient_holds(step, absmax)};
    return QuickScale::of(step, absmax);
  }
  __device__ static Word encode(const Table&, const QuantizeParams&, const Scale& scale,
                                const float (&x)[8]) {
    if constexpr (kPow2 && In::kDType != DType::f32) {
      return e2m1_eight_by_halves<In>(x, scale.inverse);
    } else {
      std::uint32_t codes[8];
#pragma unroll
      for (int i = 0; i < 8; ++i)
        codes[i] = e2m1_code_of_finite(quick_quotient(x[i], scale.scale, scale.inverse), float_bits(x[i]));
      return pack_low_first(codes);
    }
  }
};

// Rules floor, ceil and even, whose elements do not depend on the rule. Returns the inverse of the scale, a power of two:
// the product with it is the quotient, rounded once.
template <Format kFormat>
__device__ __forceinline__ float mx_begin(const QuantizeParams& p, float absmax, std::uint8_t* scale8,
                                          bool first) {
  constexpr int kEmax = kMxElementOf<kFormat>.emax;
  const std::uint8_t code = mx_code_with_addend(absmax, p.mx_addend, kEmax);
  if (first) *scale8 = code;
  return pow2f(127 - static_cast<int>(code));
}

template <class In>
struct EncodeMxfp4 {
  using Word = std::uint32_t;
  struct Table {};
  using Scale = float;
  __device__ static void fill(Table&, const QuantizeParams&) {}
  __device__ static Scale begin(const QuantizeParams& p, float absmax, float*, std::uint8_t* scale8,
                                bool first) {
    return mx_begin<Format::mxfp4>(p, absmax, scale8, first);
  }
  __device__ static Word encode(const Table&, const QuantizeParams&, const Scale& inverse,
                                const float (&x)[8]) {
    if constexpr (In::kDType != DType::f32) {
      return e2m1_eight_by_halves<In>(x, inverse);
    } else {
      std::uint32_t codes[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) codes[i] = e2m1_code_of_finite(mul_rn(x[i], inverse), float_bits(x[i]));
      return pack_low_first(codes);
    }
  }
};

template <Format kFormat>
struct EncodeMxfp8 {
  using Word = uint2;
  struct Table {};
  using Scale = float;
  __device__ static void fill(Table&, const QuantizeParams&) {}
  __device__ static Scale begin(const QuantizeParams& p, float absmax, float*, std::uint8_t* scale8,
                                bool first) {
    return mx_begin<kFormat>(p, absmax, scale8, first);
  }
  __device__ __forceinline__ static std::uint32_t two(float low, float high) {
    constexpr bool kE4m3 = kFormat == Format::mxfp8_e4m3;
#if __CUDA_ARCH__ >= 890
    std::uint16_t v;
    if (kE4m3)
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(v) : "f"(high), "f"(low));
    else
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(v) : "f"(high), "f"(low));
    return v;
#else
    if (kE4m3) return e4m3_encode(low) | static_cast<std::uint32_t>(e4m3_encode(high)) << 8;
    return e5m2_encode(low) | static_cast<std::uint32_t>(e5m2_encode(high)) << 8;
#endif
  }
  __device__ static Word encode(const Table&, const QuantizeParams&, const Scale& inverse,
                                const float (&x)[8]) {
    float q[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) q[i] = mul_rn(x[i], inverse);
    return {two(q[0], q[1]) | two(q[2], q[3]) << 16, two(q[4], q[5]) | two(q[6], q[7]) << 16};
  }
};

struct EncodeInt4 {
  using Word = std::uint32_t;
  struct Table {};
  using Scale = QuickScale;
  __device__ static void fill(Table&, const QuantizeParams&) {}
  __device__ static Scale begin(const QuantizeParams&, float absmax, float* scale, std::uint8_t*,
                                bool first) {
    const float unit = int4_scale(absmax);
    if (first) *scale = unit;
    return QuickScale::of(unit, absmax);
  }
  __device__ static Word encode(const Table&, const QuantizeParams&, const Scale& scale,
                                const float (&x)[8]) {
    std::uint32_t codes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) codes[i] = quick_integer(x[i], scale.scale, scale.inverse);
    return pack_low_first(codes);
  }
};

__device__ __forceinline__ uint2 int8_eight(const QuickScale& scale, const float (&x)[8]) {
  std::uint32_t codes[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) codes[i] = quick_integer(x[i], scale.scale, scale.inverse);
  const std::uint32_t a = __byte_perm(codes[0], codes[1], 0x0040),
                      b = __byte_perm(codes[2], codes[3], 0x0040);
  const std::uint32_t c = __byte_perm(codes[4], codes[5], 0x0040),
                      d = __byte_perm(codes[6], codes[7], 0x0040);
  return {__byte_perm(a, b, 0x5410), __byte_perm(c, d, 0x5410)};
}

// ---- whole blocks ---------------------------------------------------------------------------------------------------

__device__ __forceinline__ void note_not_finite(const QuantizeParams& p, float absmax) {
  if (!is_finite(absmax)) {
    if (p.not_finite) *p.not_finite = 1;
  }
}

template <class Word>
struct Twice;
template <>
struct Twice<std::uint32_t> {
  using Type = uint2;
};
template <>
struct Twice<uint2> {
  using Type = uint4;
};
__device__ __forceinline__ uint2 both(std::uint32_t a, std::uint32_t b) { return {a, b}; }
__device__ __forceinline__ uint4 both(uint2 a, uint2 b) { return {a.x, a.y, b.x, b.y}; }
__device__ __forceinline__ std::uint32_t word_of(std::uint32_t mixed, std::uint32_t) { return mixed; }
__device__ __forceinline__ uint2 word_of(std::uint32_t mixed, uint2) { return {mixed, mixed}; }

// Values a thread takes together: 32 bytes, so that its work on the scale is shared by 16 or 8 values.
template <class In>
inline constexpr int kEightsTogether = In::kDType == DType::f32 ? 1 : 2;

// Blocks of 16 to 256 elements, all whole, one after the other. A thread holds kUnroll portions of 16 (f32: 8) values;
// block / 16 neighbouring threads share a block. The tiles are taken from the last to the first: after a pass over the
// values for the global scale, the L2 still holds the end. kArithmetic = false moves the same bytes and computes nothing.
template <class Encode, class In, int kThreads, int kUnroll, bool kArithmetic = true>
__global__ void __launch_bounds__(kThreads) quantize_flat(const __grid_constant__ QuantizeParams p) {
  constexpr int kTogether = kEightsTogether<In>,
                kLog = kTogether == 2 ? 4 : 3;  // elements of a portion: 1 << kLog
  using Word = typename Encode::Word;
  using Out = std::conditional_t<kTogether == 2, typename Twice<Word>::Type, Word>;
  __shared__ typename Encode::Table table;
  const std::int64_t first =
      static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * (kThreads * kUnroll);  // portion
  const std::int64_t left = (p.elements >> kLog) - first;
  const unsigned portions = left < kThreads * kUnroll ? static_cast<unsigned>(left) : kThreads * kUnroll;
  // This thread's first portion of 32 bytes, code and scale; the others follow at constant distances.
  const auto* values = static_cast<const uint4*>(p.values) + (first + threadIdx.x) * 2;
  auto* codes = reinterpret_cast<Out*>(p.codes) + first + threadIdx.x;
  const int shift = p.block_shift - kLog;
  float* scales = p.scales + ((first + threadIdx.x) >> shift);
  std::uint8_t* scales8 = p.scales8 + ((first + threadIdx.x) >> shift);

  typename In::Eight in[kUnroll][kTogether];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const unsigned portion = u * kThreads + threadIdx.x;
    if (portion < portions)
#pragma unroll
      for (int t = 0; t < kTogether; ++t) in[u][t] = In::load(values, u * kThreads * kTogether + t);
  }
  Encode::fill(table, p);
  __syncthreads();
  const unsigned lanes = 1u << shift;
  const bool leads = (threadIdx.x & (lanes - 1)) == 0;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const unsigned portion = u * kThreads + threadIdx.x;
    const bool mine = portion < portions;
    float* scale_at = scales + u * (kThreads >> shift);
    std::uint8_t* scale8_at = scales8 + u * (kThreads >> shift);
    if constexpr (kArithmetic) {
      std::uint32_t largest = mine ? In::largest(in[u][0]) : 0;
      if (kTogether == 2 && mine) largest = max(largest, In::largest(in[u][kTogether - 1]));
      for (unsigned step = 1; step < lanes; step *= 2)
        largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
      if (mine) {
        const float absmax = In::magnitude(largest);
        if (leads) note_not_finite(p, absmax);
        const auto scale = Encode::begin(p, absmax, scale_at, scale8_at, leads);
        if (!is_quick(scale)) {
          rare_codes<In>(p, (first + portion) << kLog, 1 << kLog, divisor_of(scale));
          continue;
        }
        Word words[kTogether];
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
          float x[8];
          In::widen(in[u][t], x);
          words[t] = Encode::encode(table, p, scale, x);
        }
        if constexpr (kTogether == 2)
          codes[u * kThreads] = both(words[0], words[1]);
        else
          codes[u * kThreads] = words[0];
      }
    } else if (mine) {
      const std::uint32_t mixed = In::mix(in[u][0]), more = In::mix(in[u][kTogether - 1]);
      if (leads) {
        if (p.scales8)
          *scale8_at = static_cast<std::uint8_t>(mixed);
        else
          *scale_at = bits_float(mixed);
      }
      if constexpr (kTogether == 2)
        codes[u * kThreads] = both(word_of(mixed, Word{}), word_of(more, Word{}));
      else
        codes[u * kThreads] = word_of(mixed, Word{});
    }
  }
}

// Blocks of 512 to 4096 elements (nf4, fp4): a warp reads its block for the maximum and once more, from the cache, to
// encode it.
template <class Encode, class In, int kThreads>
__global__ void __launch_bounds__(kThreads) quantize_large_blocks(const __grid_constant__ QuantizeParams p) {
  __shared__ typename Encode::Table table;
  Encode::fill(table, p);
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  const std::int64_t block = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const std::int64_t per_block = std::int64_t{1} << (p.block_shift - 3);  // eights
  if (block >= p.elements >> p.block_shift) return;
  const std::int64_t first = block * per_block + lane;
  std::uint32_t largest = 0;
#pragma unroll 4
  for (std::int64_t i = 0; i < per_block; i += 32)
    largest = max(largest, In::largest(In::load(p.values, first + i)));
  for (int step = 1; step < 32; step *= 2)
    largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
  const float absmax = In::magnitude(largest);
  if (lane == 0) note_not_finite(p, absmax);
  const auto scale = Encode::begin(p, absmax, p.scales + block, nullptr, lane == 0);
  auto* codes = reinterpret_cast<typename Encode::Word*>(p.codes);
#pragma unroll 4
  for (std::int64_t i = 0; i < per_block; i += 32) {
    if (!is_quick(scale)) {
      rare_codes<In>(p, (first + i) * 8, 8, divisor_of(scale));
      continue;
    }
    float x[8];
    In::widen(In::load(p.values, first + i), x);
    codes[first + i] = Encode::encode(table, p, scale, x);
  }
}

// int8: a thread block a row of columns % 8 == 0. A row of up to kThreads * kKeep eights stays in registers.
template <class In, int kThreads, int kKeep, bool kArithmetic = true>
__global__ void __launch_bounds__(kThreads) quantize_int8_rows(const __grid_constant__ QuantizeParams p) {
  __shared__ std::uint32_t warp_largest[kThreads / 32];
  const std::int64_t eights = p.columns / 8, first = blockIdx.x * eights;
  typename In::Eight in[kKeep];
  std::uint32_t largest = 0;
#pragma unroll
  for (int k = 0; k < kKeep; ++k) {
    const std::int64_t i = k * kThreads + threadIdx.x;
    if (i < eights) in[k] = In::load(p.values, first + i);
  }
#pragma unroll
  for (int k = 0; k < kKeep; ++k)
    if (k * kThreads + threadIdx.x < eights)
      largest = max(largest, kArithmetic ? In::largest(in[k]) : In::mix(in[k]));
#pragma unroll 1
  for (std::int64_t i = kKeep * kThreads + threadIdx.x; i < eights; i += kThreads)
    largest = max(largest, In::largest(In::load(p.values, first + i)));
  for (int step = 1; step < 32; step *= 2)
    largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
  if (threadIdx.x % 32 == 0) warp_largest[threadIdx.x / 32] = largest;
  __syncthreads();
  largest = warp_largest[threadIdx.x % (kThreads / 32)];
  for (int step = 1; step < kThreads / 32; step *= 2)
    largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
  const float absmax = In::magnitude(largest), unit = int8_scale(absmax);
  if (threadIdx.x == 0) {
    note_not_finite(p, absmax);
    p.scales[blockIdx.x] = unit;
  }
  const QuickScale scale = QuickScale::of(unit, absmax);
  auto* codes = reinterpret_cast<uint2*>(p.codes) + first;
  auto store = [&](std::int64_t i, const typename In::Eight& eight) {
    if constexpr (kArithmetic) {
      if (!scale.quick) return rare_codes<In>(p, (first + i) * 8, 8, unit);
      float x[8];
      In::widen(eight, x);
      codes[i] = int8_eight(scale, x);
    } else {
      codes[i] = word_of(In::mix(eight), uint2{});
    }
  };
#pragma unroll
  for (int k = 0; k < kKeep; ++k) {
    const std::int64_t i = k * kThreads + threadIdx.x;
    if (i < eights) store(i, in[k]);
  }
#pragma unroll 1
  for (std::int64_t i = kKeep * kThreads + threadIdx.x; i < eights; i += kThreads)
    store(i, In::load(p.values, first + i));
}

// ---- global scale ---------------------------------------------------------------------------------------------------

// Largest magnitude of all values, as the bits of a float32, into *largest, which the caller has set to 0.
template <class In, bool kArithmetic = true>
__global__ void __launch_bounds__(512)
    tensor_largest(const void* values, std::int64_t elements, std::uint32_t* largest) {
  __shared__ std::uint32_t warp_largest[16];
  constexpr int kUnroll = 4;
  std::uint32_t mine = 0;
  const std::int64_t eights = elements / 8, tile = 512 * kUnroll;
  for (std::int64_t first = blockIdx.x * tile; first < eights; first += gridDim.x * tile) {
    typename In::Eight in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (first + u * 512 + threadIdx.x < eights) in[u] = In::load(values, first + u * 512 + threadIdx.x);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (first + u * 512 + threadIdx.x < eights)
        mine = kArithmetic ? max(mine, In::largest(in[u])) : mine ^ In::mix(in[u]);
  }
  float magnitude = In::magnitude(mine);
  if (blockIdx.x == 0 && threadIdx.x < elements % 8) {
    const float x = abs_value(In::element(values, eights * 8 + threadIdx.x));
    magnitude = bits_float(max(float_bits(magnitude), float_bits(x)));
  }
  mine = float_bits(magnitude);
  for (int step = 1; step < 32; step *= 2) mine = max(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, step));
  if (threadIdx.x % 32 == 0) warp_largest[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x < 16) {
    mine = warp_largest[threadIdx.x];
    for (int step = 1; step < 16; step *= 2) mine = max(mine, __shfl_xor_sync(0xFFFFu, mine, step));
    if (threadIdx.x == 0) atomicMax(largest, mine);
  }
}

static __global__ void find_global_scale(const std::uint32_t* largest, GlobalScaleRule rule, DType source,
                                         float* global_scale, int* not_finite) {
  const float amax = bits_float(*largest);
  if (!is_finite(amax) && not_finite) *not_finite = 1;
  *global_scale = nvfp4_global_scale(rule, amax, source);
}

// ---- everything else ------------------------------------------------------------------------------------------------

// One thread a block, through the codecs alone: short blocks, odd rows, and rules with a path of their own. x is read
// again for each use; a block has at most a row of elements.
template <class In>
__device__ void encode_block(const QuantizeParams& p, std::int64_t begin, std::int64_t count,
                             std::int64_t block, std::uint8_t* codes) {
  std::uint32_t bits = 0;
  for (std::int64_t i = 0; i < count; ++i)
    bits = max(bits, float_bits(In::element(p.values, begin + i)) & 0x7FFFFFFFu);
  const float absmax = bits_float(bits);
  note_not_finite(p, absmax);
  float scale = 0.0f;
  BnbScale bnb{};
  switch (p.format) {
    case Format::nf4:
    case Format::fp4:
      bnb = bnb_scale(absmax, count == p.block);
      p.scales[block] = bnb.stored;
      break;
    case Format::nvfp4: {
      const float global = *p.global_scale;
      std::uint8_t code;
      if (p.four_six || p.scale_search) {
        float x[16];
        for (int i = 0; i < 16; ++i) x[i] = i < count ? In::element(p.values, begin + i) : 0.0f;
        code = p.four_six ? nvfp4_encode_scale_four_six(p.global_rule, x, static_cast<int>(count), absmax,
                                                        global, In::kDType)
                          : nvfp4_encode_scale_search(p.global_rule, x, static_cast<int>(count), absmax,
                                                      global, In::kDType);
      } else {
        code = nvfp4_encode_scale(p.global_rule, absmax, global, In::kDType);
      }
      p.scales8[block] = code;
      scale = nvfp4_step(p.global_rule, code, global);
      break;
    }
    case Format::int4:
      p.scales[block] = scale = int4_scale(absmax);
      break;
    case Format::int8:
      p.scales[block] = scale = int8_scale(absmax);
      break;
    default: {
      constexpr MxElement kElements[] = {kMxE2m1, kMxE4m3, kMxE5m2};
      const MxElement element = kElements[p.format == Format::mxfp4        ? 0
                                          : p.format == Format::mxfp8_e4m3 ? 1
                                                                           : 2];
      const std::uint8_t code = mx_encode_scale(p.mx_rule, element, absmax, In::kDType);
      p.scales8[block] = code;
      scale = e8m0_decode(code);
      break;
    }
  }
  auto encode = [&](std::int64_t i) -> std::uint8_t {
    const float x = In::element(p.values, begin + i);
    switch (p.format) {
      case Format::nf4:
        return nf4_encode(bnb_normalise(bnb, x));
      case Format::fp4:
        return fp4_encode(bnb_normalise(bnb, x));
      case Format::nvfp4:
        return nvfp4_encode(p.global_rule, x, scale);
      case Format::mxfp4:
        return mxfp4_encode(p.mx_rule, x, scale, In::kDType);
      case Format::mxfp8_e4m3:
        return mxfp8_e4m3_encode(p.mx_rule, x, scale, In::kDType);
      case Format::mxfp8_e5m2:
        return mxfp8_e5m2_encode(p.mx_rule, x, scale, In::kDType);
      case Format::int4:
        return int4_encode(x, scale);
      default:
        return int8_encode(x, scale);
    }
  };
  if (p.format == Format::int8 || p.format == Format::mxfp8_e4m3 || p.format == Format::mxfp8_e5m2) {
    for (std::int64_t i = 0; i < count; ++i) codes[i] = encode(i);
    return;
  }
  const bool high_first = p.format == Format::nf4 || p.format == Format::fp4;
  for (std::int64_t i = 0; i < count; i += 2) {
    const std::uint8_t a = encode(i), b = i + 1 < count             ? encode(i + 1)
                                          : p.format == Format::nf4 ? kNf4Zero
                                                                    : 0;
    codes[i / 2] = static_cast<std::uint8_t>(high_first ? a << 4 | b : a | b << 4);
  }
}

// Blocks [first_block, first_block + blocks) of a tensor of rows x columns; flat formats are one row of all elements.
template <class In>
__global__ void __launch_bounds__(128) quantize_blocks(const __grid_constant__ QuantizeParams p) {
  const std::int64_t per_row = (p.columns + p.block - 1) / p.block;
  const bool bytes =
      p.format == Format::int8 || p.format == Format::mxfp8_e4m3 || p.format == Format::mxfp8_e5m2;
  const std::int64_t row_bytes = bytes ? p.columns : (p.columns + 1) / 2;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; n < p.blocks;
       n += stride) {
    const std::int64_t block = p.first_block + n, row = block / per_row, column = block % per_row * p.block;
    const std::int64_t count = min(p.block, p.columns - column);
    encode_block<In>(p, row * p.columns + column, count, block,
                     p.codes + row * row_bytes + (bytes ? column : column / 2));
  }
}

}  // namespace halfbyte::cuda
