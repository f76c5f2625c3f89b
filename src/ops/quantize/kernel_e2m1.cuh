// What the kernels that write E2M1 codes share: quick division by a block's scale, codes by way of FP16, NVFP4's block scale.
#pragma once

#include "formats/nvfp4.h"
#include "ops/quantize/fast_codes.h"
#include "ops/quantize/kernel_inputs.cuh"

namespace halfbyte::cuda {

// Nibble i of the result is the low nibble of codes[i], i < 8.
__device__ __forceinline__ std::uint32_t pack_low_first(const std::uint32_t* codes) {
  std::uint32_t word = codes[7] & 15u;
#pragma unroll
  for (int i = 6; i >= 0; --i) word = word * 16u + (codes[i] & 15u);
  return word;
}

struct QuickScale {
  float scale, inverse;
  bool quick;
  __device__ static QuickScale of(float scale, float absmax) {
    return {scale, 1.0f / scale, quick_quotient_holds(scale, absmax)};
  }
};
__device__ __forceinline__ bool is_quick(const QuickScale& scale) { return scale.quick; }

// Eight E2M1 codes of x * inverse, by way of FP16. For quotients that are exact, or of BF16 or FP16 numbers over a step of
// so few bits that a quotient which is no tie stays further away from it than FP16 rounds. That holds for BF16 also where
// the quotient is made so small that 0.5 is subnormal, which takes fewer instructions.
template <class In>
__device__ __forceinline__ std::uint32_t e2m1_eight_by_halves(const float (&x)[8], float inverse) {
  constexpr bool kSmall = In::kDType == DType::bf16;
  const float factor = kSmall ? mul_rn(inverse, pow2f(-14)) : inverse;
  std::uint32_t pair[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t halves = pack_fp16(mul_rn(x[2 * i], factor), mul_rn(x[2 * i + 1], factor));
    pair[i] = kSmall ? e2m1_codes_of_halves(halves) : e2m1_codes_of_plain_halves(halves);
  }
  // Nibbles at 0 and 16, shifted by 8 for the next pair; then the upper ones come down beside the lower ones.
  const std::uint32_t a = pair[0] + pair[1] * 256u, b = pair[2] + pair[3] * 256u;
  return __byte_perm(a + (a >> 12), b + (b >> 12), 0x5410);
}

__device__ __forceinline__ std::uint8_t e4m3_of(float x) {  // finite
#if __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return static_cast<std::uint8_t>(pair);
#else
  return e4m3_encode(x);
#endif
}

static __device__ __noinline__ std::uint8_t rare_nvfp4_scale(float absmax, float global) {
  return nvfp4_encode_scale(GlobalScaleRule::amax, absmax, global, DType::f32);
}

// The E4M3 code of a block's scale under the rules pow2 (`powers`: the global scale is a power of two) and amax.
__device__ __forceinline__ std::uint8_t nvfp4_scale_code(float absmax, float global, bool powers) {
  if (powers && absmax > pow2f(-90) && absmax < pow2f(90) && global > pow2f(-90)) {
    // quick_quotient() by 6 is exact for every float32 (a test tries all mantissas); dividing by a power of two is.
    const float inverse_global = bits_float((254u << 23) - float_bits(global));
    const std::uint8_t code = e4m3_of(mul_rn(quick_quotient(absmax, 6.0f, 1.0f / 6.0f), inverse_global));
    return code == 0 ? 1 : code;
  }
  return rare_nvfp4_scale(absmax, global);
}

// 1 / x to a float32 step or two.
__device__ __forceinline__ float rough_inverse(float x) {
  float inverse;
  asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

}  // namespace halfbyte::cuda
