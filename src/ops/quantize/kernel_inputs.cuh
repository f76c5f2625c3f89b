// The types that values come in, for device code: eight at a time, absmax as the bits of a float32.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "device/cuda/ptx.cuh"
#include "formats/bf16.h"
#include "formats/fp16.h"

namespace halfbyte::cuda {

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
    for (int i = 0; i < 4; ++i) widen_fp16(words[i], v[2 * i], v[2 * i + 1]);
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

}  // namespace halfbyte::cuda
