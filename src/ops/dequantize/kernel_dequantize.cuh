// Device code of dequantize: codes and scales in, one float a code out. One kernel for tensors whose blocks lie one after
// the other (the fast path), one for rows whose last block is short. Every table comes from the codecs.
#pragma once

#include <cstdint>

#include "device/cuda/ptx.cuh"
#include "formats/e2m1.h"
#include "formats/e8m0.h"
#include "formats/fp4.h"
#include "formats/int4.h"
#include "formats/nf4.h"
#include "formats/nvfp4.h"
#include "formats/packing.h"
#include "ops/dequantize/fast_divide.h"
#include "ops/dequantize/fast_levels.h"
#include "ops/dequantize/params.h"

namespace halfbyte::cuda {

__device__ __forceinline__ float level_of(Format format, std::uint32_t code) {
  const auto byte = static_cast<std::uint8_t>(code);
  switch (format) {
    case Format::nf4:
      return nf4_decode(byte);
    case Format::fp4:
      return fp4_decode(byte);
    case Format::int4:
      return static_cast<float>(int4_level(byte));
    case Format::mxfp8_e4m3:
      return fast_e4m3_level(byte);
    case Format::mxfp8_e5m2:
      return fast_e5m2_level(byte);
    case Format::int8:
      return fast_int8_level(byte);
    default:
      return e2m1_decode(byte);
  }
}

// ---- output types: 16 bytes of results at a time --------------------------------------------------------------------

struct OutBf16 {
  static constexpr int kChunk = 8;  // elements in 16 bytes
  using Element = std::uint16_t;
  __device__ static uint4 pack(const float (&v)[8]) {
    return {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])};
  }
  __device__ static Element round(float v) { return static_cast<Element>(pack_bf16(v, 0.0f)); }
};
struct OutFp16 {
  static constexpr int kChunk = 8;
  using Element = std::uint16_t;
  __device__ static uint4 pack(const float (&v)[8]) {
    return {pack_fp16(v[0], v[1]), pack_fp16(v[2], v[3]), pack_fp16(v[4], v[5]), pack_fp16(v[6], v[7])};
  }
  __device__ static Element round(float v) { return static_cast<Element>(pack_fp16(v, 0.0f)); }
};
struct OutFp32 {
  static constexpr int kChunk = 4;
  using Element = float;
  __device__ static uint4 pack(const float (&v)[4]) {
    return {float_bits(v[0]), float_bits(v[1]), float_bits(v[2]), float_bits(v[3])};
  }
  __device__ static Element round(float v) { return v; }
};

// ---- codes: how a chunk's codes become levels -----------------------------------------------------------------------

// One code a 4 bits, levels from a table of 16 in shared memory: 16 entries lie in 16 banks, and threads that want the
// same entry share one read, so no two reads of a warp ever collide.
template <NibbleOrder kOrder>
struct NibbleCodes {
  template <int kChunk>
  struct WordOf {
    using Type = std::conditional_t<kChunk == 8, std::uint32_t, std::uint16_t>;
  };
  struct Table {
    float levels[16];
  };
  __device__ static void fill(Table& table, const DequantizeParams& p) {
    if (threadIdx.x < 16) table.levels[threadIdx.x] = level_of(p.format, threadIdx.x);
  }
  template <int kChunk, typename Word>
  __device__ __forceinline__ static void levels(const Table& table, Word word, float (&v)[kChunk]) {
    // Each nibble times 4 is the byte offset of its level: byte i of `low` for the low nibble of byte i.
    const std::uint32_t low = (static_cast<std::uint32_t>(word) << 2) & 0x3C3C3C3Cu;
    const std::uint32_t high = (static_cast<std::uint32_t>(word) >> 2) & 0x3C3C3C3Cu;
    const char* base = reinterpret_cast<const char*>(table.levels);
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      const float a = *reinterpret_cast<const float*>(base + __byte_perm(low, 0, 0x4440 + i));
      const float b = *reinterpret_cast<const float*>(base + __byte_perm(high, 0, 0x4440 + i));
      v[2 * i] = kOrder == NibbleOrder::low_first ? a : b;
      v[2 * i + 1] = kOrder == NibbleOrder::low_first ? b : a;
    }
  }
  __device__ static std::uint32_t code(const DequantizeParams& p, std::int64_t i) {
    return nibble(kOrder, p.codes, i);
  }
};

// One code a byte, levels by arithmetic.
template <Format kFormat>
struct ByteCodes {
  template <int kChunk>
  struct WordOf {
    using Type = std::conditional_t<kChunk == 8, uint2, std::uint32_t>;
  };
  struct Table {};
  __device__ static void fill(Table&, const DequantizeParams&) {}
  __device__ __forceinline__ static void four(std::uint32_t word, float* v) {
    if constexpr (kFormat == Format::mxfp8_e5m2) {  // the upper byte of an FP16
      widen_fp16(__byte_perm(word, 0, 0x1404), v[0], v[1]);
      widen_fp16(__byte_perm(word, 0, 0x3424), v[2], v[3]);
#if __CUDA_ARCH__ >= 890
    } else if constexpr (kFormat == Format::mxfp8_e4m3) {
      widen_fp16(e4m3_to_fp16(static_cast<std::uint16_t>(word)), v[0], v[1]);
      widen_fp16(e4m3_to_fp16(static_cast<std::uint16_t>(word >> 16)), v[2], v[3]);
#endif
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = level_of(kFormat, __byte_perm(word, 0, 0x4440 + i));
    }
  }
  template <int kChunk>
  __device__ __forceinline__ static void levels(const Table&, uint2 word, float (&v)[kChunk]) {
    four(word.x, v);
    four(word.y, v + 4);
  }
  template <int kChunk>
  __device__ __forceinline__ static void levels(const Table&, std::uint32_t word, float (&v)[kChunk]) {
    four(word, v);
  }
  __device__ static std::uint32_t code(const DequantizeParams& p, std::int64_t i) { return p.codes[i]; }
};

// ---- scales: request() starts the loads, value() does the arithmetic ------------------------------------------------

struct ScaleF32 {  // nf4, fp4: absmax; int4: scale
  struct Table {};
  using Raw = float;
  __device__ static void fill(Table&, const DequantizeParams&) {}
  __device__ static Raw request(const DequantizeParams& p, std::int64_t i) {
    return __ldg(p.scales + (i >> p.block_shift));
  }
  __device__ static float value(const Table&, const DequantizeParams&, Raw raw) { return raw; }
  __device__ static std::uint32_t bits(Raw raw) { return float_bits(raw); }
};

struct ScaleDouble {  // nf4, fp4 with double quantization: both levels in this kernel
  struct Table {
    float map[256];
  };
  struct Raw {
    float nested;
    std::uint8_t code;
  };
  __device__ static void fill(Table& table, const DequantizeParams& p) {
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) table.map[i] = __ldg(p.map + i);
  }
  __device__ static Raw request(const DequantizeParams& p, std::int64_t i) {
    const std::int64_t block = i >> p.block_shift;
    return {__ldg(p.nested + (block >> p.group_shift)), __ldg(p.scales8 + block)};
  }
  __device__ static float value(const Table& table, const DequantizeParams& p, Raw raw) {
    return add_rn(mul_rn(table.map[raw.code], raw.nested), p.offset);
  }
  __device__ static std::uint32_t bits(Raw raw) { return float_bits(raw.nested) ^ raw.code; }
};

struct ScaleNvfp4 {
  struct Table {};
  using Raw = std::uint8_t;
  __device__ static void fill(Table&, const DequantizeParams&) {}
  __device__ static Raw request(const DequantizeParams& p, std::int64_t i) {
    return __ldg(p.scales8 + (i >> p.block_shift));
  }
  __device__ static float value(const Table&, const DequantizeParams& p, Raw raw) {
    const float scale = fast_e4m3_level(raw), global = __ldg(p.global_scale);
    return p.global_divides ? scale / global : mul_rn(scale, global);
  }
  __device__ static std::uint32_t bits(Raw raw) { return raw; }
};

struct ScaleE8m0 {
  struct Table {};
  using Raw = std::uint8_t;
  __device__ static void fill(Table&, const DequantizeParams&) {}
  __device__ static Raw request(const DequantizeParams& p, std::int64_t i) {
    return __ldg(p.scales8 + (i >> p.block_shift));
  }
  __device__ static float value(const Table&, const DequantizeParams&, Raw raw) { return e8m0_decode(raw); }
  __device__ static std::uint32_t bits(Raw raw) { return raw; }
};

struct ScaleRow {  // int8; row_of divides in units of 4 elements, which a row is made of on the fast path
  struct Table {};
  using Raw = float;
  __device__ static void fill(Table&, const DequantizeParams&) {}
  __device__ static Raw request(const DequantizeParams& p, std::int64_t i) {
    return __ldg(p.scales + p.row_of.quotient(static_cast<std::uint32_t>(i >> 2)));
  }
  __device__ static float value(const Table&, const DequantizeParams&, Raw raw) { return raw; }
  __device__ static std::uint32_t bits(Raw raw) { return float_bits(raw); }
};

// ---- the fast path --------------------------------------------------------------------------------------------------

// Elements lie one after the other, and every chunk of 16 bytes of output lies in one block. A thread decodes kUnroll
// chunks that are kThreads chunks apart, so that each load and store of a warp is one run of bytes; all its loads are
// under way before the tables are ready. Plain stores: streaming ones (st.global.cs) lost 4 % on an H200 at 16384 x 16384,
// 2026-11-30; one chunk a thread lost 11 to 17 %, four and eight 2 to 3 %. kArithmetic = false moves the same bytes and
// computes nothing: the measure for
// how much the arithmetic costs.
template <class Codes, class Scales, class Out, int kThreads, int kUnroll, bool kArithmetic = true>
__global__ void __launch_bounds__(kThreads) dequantize_flat(const __grid_constant__ DequantizeParams p) {
  constexpr int kChunk = Out::kChunk;
  using Word = typename Codes::template WordOf<kChunk>::Type;
  __shared__ typename Codes::Table code_table;
  __shared__ typename Scales::Table scale_table;

  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kUnroll);  // chunk
  const std::int64_t left = p.elements / kChunk - first;
  const int chunks = left < kThreads * kUnroll ? static_cast<int>(left) : kThreads * kUnroll;
  const Word* words = reinterpret_cast<const Word*>(p.codes) + first;
  uint4* out = reinterpret_cast<uint4*>(p.out) + first;

  Word word[kUnroll];
  typename Scales::Raw raw[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int chunk = u * kThreads + static_cast<int>(threadIdx.x);
    if (chunk < chunks) {
      word[u] = load_once(words + chunk);
      raw[u] = Scales::request(p, (first + chunk) * kChunk);
    }
  }
  Codes::fill(code_table, p);
  Scales::fill(scale_table, p);
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int chunk = u * kThreads + static_cast<int>(threadIdx.x);
    if (chunk < chunks) {
      if constexpr (kArithmetic) {
        float v[kChunk];
        Codes::levels(code_table, word[u], v);
        const float scale = Scales::value(scale_table, p, raw[u]);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) v[i] = mul_rn(v[i], scale);
        out[chunk] = Out::pack(v);
      } else {
        const std::uint32_t bits = Scales::bits(raw[u]);
        if constexpr (sizeof(Word) == 8) {
          out[chunk] = uint4{word[u].x, word[u].y, bits, word[u].x};
        } else {
          out[chunk] = uint4{word[u], bits, word[u], word[u]};
        }
      }
    }
  }
  // The elements after the last whole chunk, fewer than 8.
  if (blockIdx.x == gridDim.x - 1) {
    const std::int64_t i = p.elements / kChunk * kChunk + threadIdx.x;
    if (i < p.elements) {
      const float scale = Scales::value(scale_table, p, Scales::request(p, i));
      reinterpret_cast<typename Out::Element*>(p.out)[i] =
          Out::round(mul_rn(level_of(p.format, Codes::code(p, i)), scale));
    }
  }
}

// ---- rows whose last block is short ---------------------------------------------------------------------------------

__device__ inline float row_scale(const DequantizeParams& p, std::int64_t block) {
  switch (p.format) {
    case Format::nvfp4:
      return ScaleNvfp4::value({}, p, p.scales8[block]);
    case Format::int4:
    case Format::int8:
      return p.scales[block];
    default:
      return e8m0_decode(p.scales8[block]);
  }
}

// One thread a pair of elements of one row: columns of any number, no alignment. The grid strides over the pairs.
template <class Out>
__global__ void __launch_bounds__(256) dequantize_rows(const __grid_constant__ DequantizeParams p) {
  const std::int64_t pairs = (p.columns + 1) / 2, rows = p.elements / p.columns;
  const std::int64_t blocks = p.format == Format::int8 ? 1 : ((p.columns - 1) >> p.block_shift) + 1;
  const bool bytes =
      p.format == Format::int8 || p.format == Format::mxfp8_e4m3 || p.format == Format::mxfp8_e5m2;
  auto* out = reinterpret_cast<typename Out::Element*>(p.out);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; n < rows * pairs;
       n += stride) {
    const std::int64_t row = n / pairs, column = n % pairs * 2;
    const std::int64_t block = p.format == Format::int8 ? row : row * blocks + (column >> p.block_shift);
    const float scale = row_scale(p, block);
    for (int j = 0; j < 2 && column + j < p.columns; ++j) {
      const std::int64_t i = row * p.columns + column + j;
      const std::uint32_t code = bytes ? p.codes[i] : (p.codes[n] >> (4 * j)) & 15u;
      out[i] = Out::round(mul_rn(level_of(p.format, code), scale));
    }
  }
}

}  // namespace halfbyte::cuda
