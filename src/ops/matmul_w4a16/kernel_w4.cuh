// What the kernels of matmul_w4a16 share: types of activations, scales of tiles, the last step of a result.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cuda/mma.cuh"
#include "formats/hd.h"
#include "ops/matmul_w4a16/params.h"

namespace halfbyte::cuda {

// ---- activations ----------------------------------------------------------------------------------------------------

struct ActBf16 {
  static constexpr bool kBf16 = true;
  static constexpr int kScaleShift = 4;  // an E4M3 shifted so is a BF16 of 2^-120 times its value
  __device__ static std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
  }
  __device__ static void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    mma_bf16(c, a, b0, b1);
  }
  __device__ static std::uint32_t pack(float low, float high) { return pack_bf16(low, high); }
  __device__ static std::uint16_t round(float x) { return static_cast<std::uint16_t>(pack(x, 0.0f)); }
  __device__ static float widen(std::uint16_t x) { return bits_float(static_cast<std::uint32_t>(x) << 16); }
};

struct ActFp16 {
  static constexpr bool kBf16 = false;
  static constexpr int kScaleShift = 7;  // of 2^-8 times its value
  __device__ static std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
  }
  __device__ static void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    mma_fp16(c, a, b0, b1);
  }
  __device__ static std::uint32_t pack(float low, float high) { return pack_fp16(low, high); }
  __device__ static std::uint16_t round(float x) { return static_cast<std::uint16_t>(pack(x, 0.0f)); }
  __device__ static float widen(std::uint16_t x) {
    float low, high;
    widen_fp16(x, low, high);
    return low;
  }
};

// ---- scales ---------------------------------------------------------------------------------------------------------

// What a lane knows of the scales of a tile's rows g and g + 8, loaded some time before it is used. at: the tile's scales.
// Row is what a whole row of tiles shares. unit: the lane's row g and the first column, in units of 32 columns counted over
// the whole tensor.
struct FromGlobal {
  template <class T>
  __device__ static T get(const T* at) {
    return load_once(at);
  }
};
struct FromShared {
  template <class T>
  __device__ static T get(const T* at) {
    return *at;
  }
};

struct NoRow {
  __device__ void load(const W4Params&, unsigned) {}
};

// Scales that multiply the weights before they are multiplied: E4M3 times E2M1 has at most 6 bits, so the product is exact in
// both 16-bit types. A lane's codes of a row are one block.
struct ScalesInWeights {
  static constexpr bool kInWeights = true;
  static constexpr int kPerRow = 4, kBytes = 1;
  using Row = NoRow;
  std::uint32_t both = 0;
  template <class From>
  __device__ void load(const W4Params&, const std::uint8_t* at, unsigned) {
    both = From::get(reinterpret_cast<const std::uint16_t*>(at) + threadIdx.x % 32);
  }
};

// Scales that multiply sums: kPerRow of them in a row of a tile, of 64 / kPerRow columns each. [half][row g, row g + 8]
struct ScalesE8m0 {
  static constexpr bool kInWeights = false;
  static constexpr int kPerRow = 2, kBytes = 1;
  using Row = NoRow;
  std::uint32_t codes = 0;
  template <class From>
  __device__ void load(const W4Params&, const std::uint8_t* at, unsigned) {
    codes = From::get(reinterpret_cast<const std::uint32_t*>(at) + threadIdx.x % 32 / 4);
  }
  __device__ float value(const W4Params&, const float*, const Row&, int i) const {
    const std::uint32_t code = codes >> (8 * i) & 0xFFu;
    return bits_float(code ? code << 23 : 0x00400000u);
  }
};

template <int kHalves>
struct ScalesF32 {
  static constexpr bool kInWeights = false;
  static constexpr int kPerRow = kHalves, kBytes = 4;
  using Row = NoRow;
  std::conditional_t<kHalves == 1, uint2, uint4> bits{};
  template <class From>
  __device__ void load(const W4Params&, const std::uint8_t* at, unsigned) {
    bits = From::get(reinterpret_cast<const decltype(bits)*>(at) + threadIdx.x % 32 / 4);
  }
  __device__ float value(const W4Params&, const float*, const Row&, int i) const {
    if constexpr (kHalves == 2)
      if (i >= 2) return bits_float(i == 2 ? bits.z : bits.w);
    return bits_float(i == 0 ? bits.x : bits.y);
  }
};

// The nested absmax of the block that holds column `unit` of row g or, down 8, of row g + 8.
__device__ __forceinline__ float nested_absmax(const W4Params& p, unsigned unit, int down) {
  const unsigned group =
      (unit + static_cast<unsigned>(down) * static_cast<unsigned>(p.columns / 32)) >> p.group_shift;
  return __ldg(p.nested + min(group, p.last_group));
}

template <int kHalves>
struct ScalesNested {
  static constexpr bool kInWeights = false;
  static constexpr int kPerRow = kHalves, kBytes = 1;
  using Row = NoRow;
  std::uint32_t codes = 0;
  float nested[2 * kHalves] = {};
  template <class From>
  __device__ void load(const W4Params& p, const std::uint8_t* at, unsigned unit) {
    const unsigned g = threadIdx.x % 32 / 4;
    if constexpr (kHalves == 1)
      codes = From::get(reinterpret_cast<const std::uint16_t*>(at) + g);
    else
      codes = From::get(reinterpret_cast<const std::uint32_t*>(at) + g);
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) nested[i] = nested_absmax(p, unit + i / 2, i % 2 * 8);
  }
  __device__ float value(const W4Params& p, const float* map, const Row&, int i) const {
    return add_rn(mul_rn(map[codes >> (8 * i) & 0xFFu], nested[i]), p.offset);
  }
};

// The same where the 256 columns of a warp lie in one group of absmax values: K % 256 == 0, blocks of 64 and more.
struct ScalesNestedRows {
  static constexpr bool kInWeights = false;
  static constexpr int kPerRow = 1, kBytes = 1;
  struct Row {
    float nested[2];
    __device__ void load(const W4Params& p, unsigned unit) {
      nested[0] = nested_absmax(p, unit, 0);
      nested[1] = nested_absmax(p, unit, 8);
    }
  };
  std::uint32_t codes = 0;
  template <class From>
  __device__ void load(const W4Params&, const std::uint8_t* at, unsigned) {
    codes = From::get(reinterpret_cast<const std::uint16_t*>(at) + threadIdx.x % 32 / 4);
  }
  __device__ float value(const W4Params& p, const float* map, const Row& row, int i) const {
    return add_rn(mul_rn(map[codes >> (8 * i) & 0xFFu], row.nested[i]), p.offset);
  }
};

// ---- tiles and results ----------------------------------------------------------------------------------------------

template <class Scales>
inline constexpr int kTileBytes = kTileCodeBytes + kTileRows* Scales::kPerRow* Scales::kBytes;

// What remains of the global scale, to multiply sums with.
__device__ __forceinline__ float global_factor(const W4Params& p) {
  const float global = p.global_scale ? __ldg(p.global_scale) : 1.0f;
  return p.global_divides ? 1.0f / global : global;
}

// The result of row n of the weights from its sum.
template <class Act>
__device__ __forceinline__ std::uint16_t result(const W4Params& p, int n, float sum, float factor) {
  sum *= factor;
  if (p.bias) sum += Act::widen(static_cast<const std::uint16_t*>(p.bias)[n]);
  return Act::round(sum);
}
template <class Act>
__device__ __forceinline__ void finish(const W4Params& p, void* out, std::int64_t m, int n, float sum,
                                       float factor) {
  static_cast<std::uint16_t*>(out)[m * p.rows + n] = result<Act>(p, n, sum, factor);
}

}  // namespace halfbyte::cuda
