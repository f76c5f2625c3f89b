// Device code of quantize: values in, codes and scales out. Fast kernels for whole blocks, which share a block among
// neighbouring threads; and one thread a block for everything rare (short blocks, rules that need the codec's own path).
#pragma once

#include <cstdint>

#include "device/cuda/ptx.cuh"
#include "formats/bf16.h"
#include "formats/bnb_block.h"
#include "formats/fp16.h"
#include "formats/int4.h"
#include "formats/int8.h"
#include "formats/mxfp4.h"
#include "formats/mxfp8.h"
#include "formats/nvfp4.h"
#include "ops/quantize/cuda_params.h"
#include "ops/quantize/fast_codes.h"

namespace halfbyte::cuda {

// ---- input types: eight values at a time, absmax as the bits of a float32 -----------------------------------------------

struct InBf16 {
  static constexpr DType kDType = DType::bf16;
  struct Eight {
    uint4 words;
  };
  __device__ static Eight load(const void* values, std::int64_t eight) {
    return {__ldg(static_cast<const uint4*>(values) + eight)};
  }
  // Magnitudes of BF16 and FP16 order like their bits, NaN above everything.
  __device__ static std::uint32_t largest(const Eight& in) {
    const std::uint32_t a = __vmaxu2(in.words.x & 0x7FFF7FFFu, in.words.y & 0x7FFF7FFFu);
    const std::uint32_t b = __vmaxu2(in.words.z & 0x7FFF7FFFu, in.words.w & 0x7FFF7FFFu);
    const std::uint32_t c = __vmaxu2(a, b);
    return max(c & 0xFFFFu, c >> 16);
  }
  __device__ static float magnitude(std::uint32_t largest) { return bits_float(largest << 16); }
  __device__ static void widen(const Eight& in, float (&v)[8]) {
    const std::uint32_t words[4] = {in.words.x, in.words.y, in.words.z, in.words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = bits_float(words[i] << 16);
      v[2 * i + 1] = bits_float(words[i] & 0xFFFF0000u);
    }
  }
  __device__ static std::uint32_t mix(const Eight& in) {
    return in.words.x ^ in.words.y ^ in.words.z ^ in.words.w;
  }
  __device__ static float element(const void* values, std::int64_t i) {
    return bf16_decode(static_cast<const std::uint16_t*>(values)[i]);
  }
};

struct InFp16 {
  static constexpr DType kDType = DType::f16;
  using Eight = InBf16::Eight;
  __device__ static Eight load(const void* values, std::int64_t eight) { return InBf16::load(values, eight); }
  __device__ static std::uint32_t largest(const Eight& in) { return InBf16::largest(in); }
  __device__ static float magnitude(std::uint32_t largest) {
    return fp16_decode(static_cast<std::uint16_t>(largest));
  }
  __device__ static void widen(const Eight& in, float (&v)[8]) {
    const std::uint32_t words[4] = {in.words.x, in.words.y, in.words.z, in.words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
          : "=f"(v[2 * i]), "=f"(v[2 * i + 1])
          : "r"(words[i]));
  }
  __device__ static std::uint32_t mix(const Eight& in) { return InBf16::mix(in); }
  __device__ static float element(const void* values, std::int64_t i) {
    return fp16_decode(static_cast<const std::uint16_t*>(values)[i]);
  }
};

struct InFp32 {
  static constexpr DType kDType = DType::f32;
  struct Eight {
    uint4 low, high;
  };
  __device__ static Eight load(const void* values, std::int64_t eight) {
    const uint4* p = static_cast<const uint4*>(values) + 2 * eight;
    return {__ldg(p), __ldg(p + 1)};
  }
  __device__ static std::uint32_t largest(const Eight& in) {
    const std::uint32_t a = max(max(in.low.x & 0x7FFFFFFFu, in.low.y & 0x7FFFFFFFu),
                                max(in.low.z & 0x7FFFFFFFu, in.low.w & 0x7FFFFFFFu));
    const std::uint32_t b = max(max(in.high.x & 0x7FFFFFFFu, in.high.y & 0x7FFFFFFFu),
                                max(in.high.z & 0x7FFFFFFFu, in.high.w & 0x7FFFFFFFu));
    return max(a, b);
  }
  __device__ static float magnitude(std::uint32_t largest) { return bits_float(largest); }
  __device__ static void widen(const Eight& in, float (&v)[8]) {
    const std::uint32_t words[8] = {in.low.x,  in.low.y,  in.low.z,  in.low.w,
                                    in.high.x, in.high.y, in.high.z, in.high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = bits_float(words[i]);
  }
  __device__ static std::uint32_t mix(const Eight& in) {
    return in.low.x ^ in.low.y ^ in.low.z ^ in.low.w ^ in.high.x ^ in.high.y ^ in.high.z ^ in.high.w;
  }
  __device__ static float element(const void* values, std::int64_t i) {
    return static_cast<const float*>(values)[i];
  }
};

// ---- encoders: begin() finds a block's scale (writing it where `first`), encode() eight codes ---------------------------

// Nibble i of the result is the low nibble of codes[i].
__device__ __forceinline__ std::uint32_t pack_low_first(const std::uint32_t (&codes)[8]) {
  std::uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) word |= codes[i] << (4 * i);
  return word;
}

static __constant__ BucketTable c_nf4_buckets = bucket_table<Nf4Buckets>();
static __constant__ BucketTable c_fp4_buckets = bucket_table<Fp4Buckets>();

template <class Buckets, class In>
struct EncodeBnb {  // nf4, fp4
  using Word = std::uint32_t;
  using Table = BucketTable;
  using Scale = BnbScale;
  __device__ static void fill(Table& table, const QuantizeParams&) {
    const BucketTable& source = std::is_same_v<Buckets, Nf4Buckets> ? c_nf4_buckets : c_fp4_buckets;
    if (threadIdx.x < 32) table.entry[threadIdx.x] = source.entry[threadIdx.x];
  }
  __device__ static Scale begin(const QuantizeParams& p, float absmax, std::int64_t block, bool first) {
    const BnbScale scale = bnb_scale(absmax, true);
    if (first) p.scales[block] = scale.stored;
    return scale;
  }
  __device__ static Word encode(const Table& table, const QuantizeParams&, const Scale& scale,
                                const float (&x)[8]) {
    Word word = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // No clamp: all thresholds lie inside (-1, 1).
      const float v = mul_rn(x[i], scale.factor);
      word |= bucket_code(table.entry[Buckets::bucket(v)], v) << (4 * (i ^ 1));
    }
    return word;
  }
};

// Eight E2M1 codes of x / step, where inverse = R32(1 / step). kFewBits: every tie times step, and x, have few enough bits
// that a quotient which is not a tie stays away from it by more than FP16 of the quotient rounds (BF16 input), or by more
// than 2^-23 (FP16 input).
template <class In, bool kExactInverse>
__device__ __forceinline__ std::uint32_t e2m1_eight(const float (&x)[8], float step, float inverse,
                                                    bool few_bits) {
  std::uint32_t codes[8];
  if (In::kDType == DType::bf16 && few_bits) {
    const float scaled = mul_rn(inverse, pow2f(-14));
    std::uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pair[i] = e2m1_codes_of_halves(pack_fp16(mul_rn(x[2 * i], scaled), mul_rn(x[2 * i + 1], scaled)));
    // Nibbles at 0 and 16, shifted by 8 for the next pair; then the upper ones come down beside the lower ones.
    const std::uint32_t a = pair[0] | pair[1] << 8, b = pair[2] | pair[3] << 8;
    return __byte_perm(a | a >> 12, b | b >> 12, 0x5410);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float quotient = kExactInverse ? mul_rn(x[i], inverse) : quick_quotient(x[i], step, inverse);
    codes[i] = In::kDType == DType::f16 && few_bits ? e2m1_code_of_scaled(mul_rn(quotient, pow2f(-126)))
                                                    : e2m1_code_of_finite(quotient);
  }
  return pack_low_first(codes);
}

template <class In>
struct EncodeNvfp4 {  // rules pow2 and amax
  using Word = std::uint32_t;
  struct Table {};
  struct Scale {
    float step, inverse;
    bool quick;
  };
  __device__ static void fill(Table&, const QuantizeParams&) {}
  __device__ static Scale begin(const QuantizeParams& p, float absmax, std::int64_t block, bool first) {
    const float global = __ldg(p.global_scale);
    // Only rules pow2 and amax come here; naming them drops the code of the others.
    const std::uint8_t code = nvfp4_encode_scale(GlobalScaleRule::amax, absmax, global, In::kDType);
    if (first) p.scales8[block] = code;
    const float step = nvfp4_step(GlobalScaleRule::amax, code, global);
    return {step, 1.0f / step, quick_quotient_holds(step, absmax)};
  }
  __device__ static Word encode(const Table&, const QuantizeParams& p, const Scale& scale,
                                const float (&x)[8]) {
    if (scale.quick)
      return e2m1_eight<In, false>(x, scale.step, scale.inverse, p.global_rule == GlobalScaleRule::pow2);
    std::uint32_t codes[8];
    for (int i = 0; i < 8; ++i) codes[i] = nvfp4_encode(GlobalScaleRule::amax, x[i], scale.step);
    return pack_low_first(codes);
  }
};

// Copies that device code may take the address of.
template <Format kFormat>
__device__ constexpr MxElement mx_element() {
  constexpr MxElement element = kFormat == Format::mxfp4        ? kMxE2m1
                                : kFormat == Format::mxfp8_e4m3 ? kMxE4m3
                                                                : kMxE5m2;
  return element;
}

// Rules of which the elements do not depend on the rule: floor, ceil, rceil, even.
__device__ __forceinline__ float mx_begin(const QuantizeParams& p, const MxElement& element, float absmax,
                                          std::int64_t block, bool first) {
  const MxScaleRule rule = p.mx_rule == MxScaleRule::ceil    ? MxScaleRule::ceil
                           : p.mx_rule == MxScaleRule::rceil ? MxScaleRule::rceil
                           : p.mx_rule == MxScaleRule::even  ? MxScaleRule::even
                                                             : MxScaleRule::floor;
  const std::uint8_t code = mx_encode_scale(rule, element, absmax, DType::f32);
  if (first) p.scales8[block] = code;
  return pow2f(127 - static_cast<int>(code));  // exact, so the product is the quotient, rounded once
}

template <class In>
struct EncodeMxfp4 {
  using Word = std::uint32_t;
  struct Table {};
  using Scale = float;
  __device__ static void fill(Table&, const QuantizeParams&) {}
  __device__ static Scale begin(const QuantizeParams& p, float absmax, std::int64_t block, bool first) {
    return mx_begin(p, mx_element<Format::mxfp4>(), absmax, block, first);
  }
  __device__ static Word encode(const Table&, const QuantizeParams&, const Scale& inverse,
                                const float (&x)[8]) {
    return e2m1_eight<In, true>(x, 0.0f, inverse, true);
  }
};

template <bool kE4m3>
struct EncodeMxfp8 {
  using Word = uint2;
  struct Table {};
  using Scale = float;
  __device__ static void fill(Table&, const QuantizeParams&) {}
  __device__ static Scale begin(const QuantizeParams& p, float absmax, std::int64_t block, bool first) {
    return mx_begin(p, mx_element < kE4m3 ? Format::mxfp8_e4m3 : Format::mxfp8_e5m2 > (), absmax, block,
                    first);
  }
  __device__ __forceinline__ static std::uint32_t two(float low, float high) {
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

struct IntegerScale {
  float scale, inverse;
  bool quick;
};

// The integer nearest to x / scale, ties to even, in the low bits: 1.5 * 2^23 has a float32 step of 1.
__device__ __forceinline__ std::uint32_t integer_code(float x, const IntegerScale& scale, float lowest,
                                                      float highest) {
  const float quotient = scale.quick ? quick_quotient(x, scale.scale, scale.inverse) : x / scale.scale;
  return float_bits(add_rn(fminf(fmaxf(quotient, lowest), highest), 12582912.0f));
}

struct EncodeInt4 {
  using Word = std::uint32_t;
  struct Table {};
  using Scale = IntegerScale;
  __device__ static void fill(Table&, const QuantizeParams&) {}
  __device__ static Scale begin(const QuantizeParams& p, float absmax, std::int64_t block, bool first) {
    const float scale = int4_scale(absmax);
    if (first) p.scales[block] = scale;
    return {scale, 1.0f / scale, quick_quotient_holds(scale, absmax)};
  }
  __device__ static Word encode(const Table&, const QuantizeParams&, const Scale& scale,
                                const float (&x)[8]) {
    std::uint32_t codes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) codes[i] = integer_code(x[i], scale, -8.0f, 7.0f) & 15u;
    return pack_low_first(codes);
  }
};

__device__ __forceinline__ uint2 int8_eight(const IntegerScale& scale, const float (&x)[8]) {
  std::uint32_t codes[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) codes[i] = integer_code(x[i], scale, -127.0f, 127.0f);
  const std::uint32_t a = __byte_perm(codes[0], codes[1], 0x0040),
                      b = __byte_perm(codes[2], codes[3], 0x0040);
  const std::uint32_t c = __byte_perm(codes[4], codes[5], 0x0040),
                      d = __byte_perm(codes[6], codes[7], 0x0040);
  return {__byte_perm(a, b, 0x5410), __byte_perm(c, d, 0x5410)};
}

// ---- whole blocks ---------------------------------------------------------------------------------------------------

__device__ __forceinline__ void note_not_finite(const QuantizeParams& p, float absmax) {
  if (!is_finite(absmax) && p.not_finite) *p.not_finite = 1;
}

__device__ __forceinline__ std::uint32_t xor_word(std::uint32_t mixed, std::uint32_t) { return mixed; }
__device__ __forceinline__ uint2 xor_word(std::uint32_t mixed, uint2) { return {mixed, mixed}; }

// Blocks of 16 to 256 elements, all whole, one after the other. A thread holds kUnroll times eight values; block / 8
// neighbouring threads share a block. The tiles are taken from the last to the first: after a pass over the values for
// the global scale, the L2 still holds the end. kArithmetic = false moves the same bytes and computes nothing.
template <class Encode, class In, int kThreads, int kUnroll, bool kArithmetic = true>
__global__ void __launch_bounds__(kThreads) quantize_flat(const __grid_constant__ QuantizeParams p) {
  __shared__ typename Encode::Table table;
  const std::int64_t tile = gridDim.x - 1 - blockIdx.x;
  const std::int64_t first = tile * (kThreads * kUnroll);  // in units of eight elements
  const std::int64_t eights = p.elements / 8;
  typename In::Eight in[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t eight = first + u * kThreads + threadIdx.x;
    if (eight < eights) in[u] = In::load(p.values, eight);
  }
  Encode::fill(table, p);
  __syncthreads();
  const int lanes = 1 << (p.block_shift - 3);
  const bool leads = (threadIdx.x & (lanes - 1)) == 0;
  auto* codes = reinterpret_cast<typename Encode::Word*>(p.codes);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t eight = first + u * kThreads + threadIdx.x;
    const bool mine = eight < eights;
    const std::int64_t block = eight >> (p.block_shift - 3);
    if constexpr (kArithmetic) {
      std::uint32_t largest = mine ? In::largest(in[u]) : 0;
      for (int step = 1; step < lanes; step *= 2)
        largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
      if (mine) {
        const float absmax = In::magnitude(largest);
        if (leads) note_not_finite(p, absmax);
        const auto scale = Encode::begin(p, absmax, block, leads);
        float x[8];
        In::widen(in[u], x);
        codes[eight] = Encode::encode(table, p, scale, x);
      }
    } else if (mine) {
      const std::uint32_t mixed = In::mix(in[u]);
      if (leads) {
        if (p.scales8)
          p.scales8[block] = static_cast<std::uint8_t>(mixed);
        else
          p.scales[block] = bits_float(mixed);
      }
      codes[eight] = xor_word(mixed, typename Encode::Word{});
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
  const auto scale = Encode::begin(p, absmax, block, lane == 0);
  auto* codes = reinterpret_cast<typename Encode::Word*>(p.codes);
#pragma unroll 4
  for (std::int64_t i = 0; i < per_block; i += 32) {
    float x[8];
    In::widen(In::load(p.values, first + i), x);
    codes[first + i] = Encode::encode(table, p, scale, x);
  }
}

// int8: a thread block a row of columns % 8 == 0. A row of up to kThreads * kKeep eights stays in registers.
template <class In, int kThreads, int kKeep, bool kArithmetic = true>
__global__ void __launch_bounds__(kThreads) quantize_int8_rows(const __grid_constant__ QuantizeParams p) {
  __shared__ std::uint32_t warp_largest[kThreads / 32];
  const std::int64_t row = blockIdx.x, eights = p.columns / 8, first = row * eights;
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
  for (std::int64_t i = kKeep * kThreads + threadIdx.x; i < eights; i += kThreads)
    largest = max(largest, In::largest(In::load(p.values, first + i)));
  for (int step = 1; step < 32; step *= 2)
    largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
  if (threadIdx.x % 32 == 0) warp_largest[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) largest = max(largest, warp_largest[w]);
  const float absmax = In::magnitude(largest), unit = int8_scale(absmax);
  if (threadIdx.x == 0) {
    note_not_finite(p, absmax);
    p.scales[row] = unit;
  }
  const IntegerScale scale{unit, 1.0f / unit, quick_quotient_holds(unit, absmax)};
  auto* codes = reinterpret_cast<uint2*>(p.codes);
#pragma unroll
  for (int k = 0; k < kKeep; ++k) {
    const std::int64_t i = k * kThreads + threadIdx.x;
    if (i < eights) {
      if constexpr (kArithmetic) {
        float x[8];
        In::widen(in[k], x);
        codes[first + i] = int8_eight(scale, x);
      } else {
        codes[first + i] = xor_word(In::mix(in[k]), uint2{});
      }
    }
  }
  for (std::int64_t i = kKeep * kThreads + threadIdx.x; i < eights; i += kThreads) {
    float x[8];
    In::widen(In::load(p.values, first + i), x);
    codes[first + i] = int8_eight(scale, x);
  }
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
      if (p.four_six) {
        float x[16];
        for (int i = 0; i < 16; ++i) x[i] = i < count ? In::element(p.values, begin + i) : 0.0f;
        code = nvfp4_encode_scale_four_six(p.global_rule, x, static_cast<int>(count), absmax, global,
                                           In::kDType);
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
      const MxElement element = p.format == Format::mxfp4        ? mx_element<Format::mxfp4>()
                                : p.format == Format::mxfp8_e4m3 ? mx_element<Format::mxfp8_e4m3>()
                                                                 : mx_element<Format::mxfp8_e5m2>();
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
