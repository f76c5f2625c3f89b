// Device code of fused_activation: a thread block a row, which stays in registers between the norm and the rounding.
#pragma once

#include <cstdint>

#include "formats/mxfp4.h"
#include "formats/swizzle.h"
#include "ops/fused_activation/params.h"
#include "ops/fused_activation/silu.h"
#include "ops/quantize/cuda_params.h"
#include "ops/quantize/kernel_e2m1.cuh"
#include "ops/rms_norm/sum_of_squares.h"

namespace halfbyte::cuda {

// ---- sixteens: 16 consecutive columns of a row, as float32 in registers -------------------------------------------------

// As BF16 or FP16 they are 32 bytes.
struct Raw {
  uint4 low, high;
  __device__ __forceinline__ static Raw load(const void* row, int s) {
    return {__ldg(static_cast<const uint4*>(row) + 2 * s), __ldg(static_cast<const uint4*>(row) + 2 * s + 1)};
  }
  __device__ __forceinline__ void widen(DType dtype, float (&v)[16]) const {
    float a[8], b[8];
    if (dtype == DType::bf16) {
      InBf16::widen({low}, a);
      InBf16::widen({high}, b);
    } else {
      InFp16::widen({low}, a);
      InFp16::widen({high}, b);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = a[i], v[i + 8] = b[i];
  }
};

// Columns [16 s, 16 s + 16) of a row of `columns`, zeros after its end. vectors: the row may be read 16 bytes at a time.
__device__ __forceinline__ void load_sixteen(DType dtype, const void* row, int s, int columns, bool vectors,
                                             float (&v)[16]) {
  if (vectors && dtype != DType::f32) {
    Raw::load(row, s).widen(dtype, v);
  } else if (vectors) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 four = __ldg(static_cast<const float4*>(row) + 4 * s + i);
      v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int c = 16 * s + i;
      v[i] = c >= columns           ? 0.0f
             : dtype == DType::bf16 ? InBf16::element(row, c)
             : dtype == DType::f16  ? InFp16::element(row, c)
                                    : InFp32::element(row, c);
    }
  }
}

// v rounded to dtype, and as such written where row is not null.
__device__ __forceinline__ void round_and_store(DType dtype, void* row, int s, int columns, bool vectors,
                                                float (&v)[16]) {
  if (dtype == DType::f32) {
    if (!row) return;
    if (vectors) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        static_cast<float4*>(row)[4 * s + i] = {v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]};
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i)
        if (16 * s + i < columns) static_cast<float*>(row)[16 * s + i] = v[i];
    }
    return;
  }
  std::uint32_t words[8];
  if (dtype == DType::bf16) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      words[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
      v[2 * i] = bits_float(words[i] << 16);
      v[2 * i + 1] = bits_float(words[i] & 0xFFFF0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      words[i] = pack_fp16(v[2 * i], v[2 * i + 1]);
      widen_fp16(words[i], v[2 * i], v[2 * i + 1]);
    }
  }
  if (!row) return;
  if (vectors) {
    static_cast<uint4*>(row)[2 * s] = {words[0], words[1], words[2], words[3]};
    static_cast<uint4*>(row)[2 * s + 1] = {words[4], words[5], words[6], words[7]};
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i)
      if (16 * s + i < columns)
        static_cast<std::uint16_t*>(row)[16 * s + i] =
            static_cast<std::uint16_t>(words[i / 2] >> 16 * (i % 2));
  }
}

// Where column c of a staged row lies: the four quarters of a sixteen change places from one pair of sixteens to the next, so
// that neither 32 threads that store a quarter each nor readers of neighbouring columns meet in a bank.
__device__ __forceinline__ int staged_at(int c) {
  return (c & ~15) | ((((c >> 2) + (c >> 5)) & 3) << 2) | (c & 3);
}

__device__ __forceinline__ float larger_or_nan(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

__device__ __forceinline__ float largest_magnitude(const float (&v)[16]) {
  float m[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) m[i] = larger_or_nan(fabsf(v[i]), fabsf(v[i + 8]));
#pragma unroll
  for (int half = 4; half; half /= 2)
#pragma unroll
    for (int i = 0; i < half; ++i) m[i] = larger_or_nan(m[i], m[i + half]);
  return m[0];
}

// ---- rounding -----------------------------------------------------------------------------------------------------------

// e2m1_decode() without a table: the bits of a code in the place of a float32's are its value times 2^-126; 0.5 is subnormal.
__device__ __forceinline__ float e2m1_value(std::uint32_t code) {
  return mul_rn(bits_float((code & 8u) << 28 | (code & 7u) << 22), pow2f(126));
}

// What one unit of E2M1 is worth in a block, and how to divide by it. 1 / step = inverse + rest, times 2^-14 as
// e2m1_codes_of_sticky_halves() wants it: for a step of few bits, the rule pow2 and mxfp4, two operations give the rounded
// quotient (the same argument as quick_quotient()'s; no step of four bits puts a float32 nearer than 2^-24 to a tie).
struct Step {
  float step, inverse, rest;
  bool quick;
  __device__ static Step of(float step, float absmax, bool few_bits) {
    float inverse = 1.0f / step;
    // One too low, so that the rest is positive and few_bits() keeps the sign of a zero.
    if (few_bits) inverse = bits_float(float_bits(inverse) - 1u);
    return {step, mul_rn(inverse, pow2f(-14)),
            mul_rn(mul_rn(fma_rn(-step, inverse, 1.0f), inverse), pow2f(-14)),
            quick_quotient_holds(step, absmax)};
  }
  // Of a power of two.
  __device__ static Step of_power(float step, std::uint8_t code) {
    return {step, pow2f(113 - static_cast<int>(code)), 0.0f, true};
  }
  __device__ __forceinline__ float few_bits(float x) const { return fma_rn(x, inverse, mul_rn(x, rest)); }
  __device__ __forceinline__ float many_bits(float x) const {
    const float quotient = quick_quotient(x, mul_rn(step, pow2f(14)), inverse);
    return bits_float((float_bits(quotient) & 0x7FFFFFFFu) |
                      (float_bits(x) & 0x80000000u));  // a zero's sign is lost
  }
};

// Codes of two float32 numbers times 2^-14. The conversion to FP16 cuts off, and what it cut off sets the last bit, which no
// tie of E2M1 has: so a number beside a tie stays beside it, and the second rounding is as good as one alone.
__device__ __forceinline__ std::uint32_t e2m1_codes_of_sticky_halves(float low, float high) {
  std::uint32_t halves;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
  const std::uint32_t cut = __byte_perm(float_bits(low), float_bits(high), 0x5410);
  return e2m1_codes_of_halves(halves | min_halves(cut, 0x00010001u));
}

__device__ __forceinline__ std::uint32_t e2m1_eight(const float* quotients) {
  std::uint32_t pair[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pair[i] = e2m1_codes_of_sticky_halves(quotients[2 * i], quotients[2 * i + 1]);
  const std::uint32_t a = pair[0] + pair[1] * 256u, b = pair[2] + pair[3] * 256u;
  return __byte_perm(a + (a >> 12), b + (b >> 12), 0x5410);
}

// The E2M1 level nearest to a finite magnitude times 2^-14, without that factor: at 2^(e + 22) a float32 step is the distance
// of levels, as in e2m1_code_of_finite().
__device__ __forceinline__ float e2m1_round(float magnitude) {
  const float a = fminf(mul_rn(magnitude, pow2f(14)), 6.0f);
  const float large = bits_float(max(float_bits(a) & 0x7F800000u, 0x3F800000u) + (22u << 23));
  return add_rn(add_rn(a, large), -large);
}

// Squared errors as nvfp4_block_error() has them, for rules whose codes keep the sign.
template <int N>
__device__ __forceinline__ void squared_errors(const float (&x)[N], const Step& step, bool powers,
                                               float (&squares)[N]) {
  const auto square = [&](int i, float level) {
    const float error = add_rn(mul_rn(level, step.step), -fabsf(x[i]));
    squares[i] = mul_rn(error, error);
  };
  if (step.quick && powers) {
#pragma unroll
    for (int i = 0; i < N; ++i) {  // level * step has few bits, so it is exact in the fused sum
      const float error = fma_rn(e2m1_round(fabsf(step.few_bits(x[i]))), step.step, -fabsf(x[i]));
      squares[i] = mul_rn(error, error);
    }
  } else if (step.quick) {
#pragma unroll
    for (int i = 0; i < N; ++i) square(i, e2m1_round(fabsf(step.many_bits(x[i]))));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) square(i, e2m1_round(mul_rn(fabsf(x[i] / step.step), pow2f(-14))));
  }
}

// How the blocks of this call are rounded: the same for all threads.
template <FusedMode kMode>
struct Rounding {
  const FusedParams& p;
  float global;
  bool nvfp4, powers;  // powers: all steps are numbers of few bits

  __device__ Rounding(const FusedParams& params, float scale) : p(params), global(scale) {
    nvfp4 = params.args.spec.format == Format::nvfp4;
    powers = !nvfp4 ||
             (params.args.spec.global_scale == GlobalScaleRule::pow2 && (float_bits(scale) & 0x7FFFFFu) == 0);
  }

  __device__ std::uint8_t scale_code(float absmax) const {
    const QuantSpec& spec = p.args.spec;
    if (nvfp4)
      return kMode != FusedMode::general || nvfp4_keeps_negative_zero(spec.global_scale)
                 ? nvfp4_scale_code(absmax, global, powers)
                 : nvfp4_encode_scale(spec.global_scale, absmax, global, DType::f32);
    return kMode != FusedMode::general || p.plain_mx
               ? mx_code_with_addend(absmax, p.mx_addend, kMxE2m1.emax)
               : mx_encode_scale(spec.mx_scale, kMxE2m1, absmax, DType::f32);
  }
  __device__ Step step_of(std::uint8_t code, float absmax) const {
    if (!nvfp4) return Step::of_power(e8m0_decode(code), code);
    if (kMode == FusedMode::general)
      return Step::of(nvfp4_step(p.args.spec.global_scale, code, global), absmax, powers);
#if __CUDA_ARCH__ >= 890
    float scale, unused;
    widen_fp16(e4m3_to_fp16(code), scale, unused);
    return Step::of(mul_rn(scale, global), absmax, powers);
#else
    return Step::of(mul_rn(e4m3_decode(code), global), absmax, powers);
#endif
  }
  // The best of several scales by error(step), in the order of nvfp4_encode_scale_search() or of 4/6.
  template <class Error>
  __device__ std::uint8_t best_scale(float absmax, Error error) const {
    const std::uint8_t first = scale_code(absmax);
    const QuantSpec& spec = p.args.spec;
    if (kMode == FusedMode::plain || (kMode == FusedMode::general && !spec.scale_search && !spec.four_six))
      return first;
    const bool four_six = kMode == FusedMode::general && spec.four_six;
    std::uint8_t best = first;
    float least = 0.0f;
#pragma unroll 1
    for (int i = 0; i < (four_six ? 2 : kNvfp4SearchScales); ++i) {
      const std::uint8_t code = four_six && i
                                    ? nvfp4_encode_scale(spec.global_scale, absmax, global, DType::f32, 4.0f)
                                    : nvfp4_near_scale(first, four_six ? 0 : nvfp4_search_offset(i));
      const float found = error(step_of(code, absmax));
      if (i > 0 && !(found < least)) continue;
      least = found;
      best = code;
    }
    return best;
  }
  // Quotients times 2^-14 of N values whose codes keep their sign.
  template <int N>
  __device__ __forceinline__ void divide(const float (&x)[N], const Step& step, float (&quotients)[N]) const {
    if (step.quick && powers) {
#pragma unroll
      for (int i = 0; i < N; ++i) quotients[i] = step.few_bits(x[i]);
    } else if (step.quick) {
#pragma unroll
      for (int i = 0; i < N; ++i) quotients[i] = step.many_bits(x[i]);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) quotients[i] = mul_rn(x[i] / step.step, pow2f(-14));
    }
  }
  // Codes of N values, packed; N is 4 or 16.
  template <int N>
  __device__ __forceinline__ void encode(const float (&x)[N], const Step& step,
                                         std::uint32_t (&words)[(N + 7) / 8]) const {
    if (kMode == FusedMode::general && !p.keeps_sign) {
      const QuantSpec& spec = p.args.spec;
#pragma unroll
      for (int i = 0; i < (N + 7) / 8; ++i) words[i] = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const std::uint32_t code = nvfp4 ? nvfp4_encode(spec.global_scale, x[i], step.step)
                                         : mxfp4_encode(spec.mx_scale, x[i], step.step, DType::f32);
        words[i / 8] |= (code & 15u) << 4 * (i % 8);
      }
      return;
    }
    float quotients[N];
    divide(x, step, quotients);
    if constexpr (N == 16) {
      words[0] = e2m1_eight(quotients);
      words[1] = e2m1_eight(quotients + 8);
    } else {
      const std::uint32_t a = e2m1_codes_of_sticky_halves(quotients[0], quotients[1]) +
                              e2m1_codes_of_sticky_halves(quotients[2], quotients[3]) * 256u;
      words[0] = (a + (a >> 12)) & 0xFFFFu;
    }
  }
};

// ---- one row ------------------------------------------------------------------------------------------------------------

// Shared memory after the group sums: the staged row, float [max(K, W)]; where residual channels are chosen also the codes of
// the main blocks, [W / 2], and their steps, float [W / 16].
struct Shared {
  float* row;
  std::uint8_t* codes;
  float* steps;
  __device__ Shared(unsigned char* memory, const FusedParams& p) {
    const std::int64_t most = p.args.columns > p.args.width ? p.args.columns : p.args.width;
    row = reinterpret_cast<float*>(memory);
    codes = reinterpret_cast<std::uint8_t*>(row + (most + 15) / 16 * 16);
    steps = reinterpret_cast<float*>(codes + p.args.width / 2);
  }
};

__device__ __forceinline__ std::uint8_t* scale_place(const FusedParams& p, std::int64_t row, int position,
                                                     int row_blocks) {
  return p.args.scales + (p.args.scale_layout == ScaleLayout::rows
                              ? row * row_blocks + position
                              : swizzled_offset(row, position, row_blocks));
}

// Four residual channels a thread, a block in 4 or 8 neighbouring lanes.
template <FusedMode kMode>
__device__ __forceinline__ void round_residuals(const Rounding<kMode>& rounding, const Shared& shared,
                                                std::int64_t row, int row_blocks) {
  const FusedParams& p = rounding.p;
  const int block = rounding.nvfp4 ? 16 : 32, lane = threadIdx.x % 32;
  const int fours = static_cast<int>(p.args.chosen_count) / 4;
  for (int first = threadIdx.x - lane; first < fours; first += p.threads) {
    const int j = first + lane;
    float lost[4] = {};
    if (j < fours) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = p.args.chosen[4 * j + i], from = p.args.order ? p.args.order[column] : column;
        const float x = from < 0 ? 0.0f : shared.row[staged_at(from)];
        const std::uint32_t code = shared.codes[column >> 1] >> 4 * (column & 1);
        lost[i] = add_rn(x, -mul_rn(e2m1_value(code), shared.steps[column >> 4]));
      }
    }
    float absmax = larger_or_nan(larger_or_nan(fabsf(lost[0]), fabsf(lost[1])),
                                 larger_or_nan(fabsf(lost[2]), fabsf(lost[3])));
    for (int step = 1; step < block / 4; step *= 2)
      absmax = larger_or_nan(absmax, __shfl_xor_sync(~0u, absmax, step));
    const std::uint8_t scale = rounding.best_scale(absmax, [&](const Step& step) {
      float squares[4];
      squared_errors(lost, step, rounding.powers, squares);
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // elements 8, then 4 apart, that is 2 lanes and 1
        squares[i] = add_rn(squares[i], __shfl_xor_sync(~0u, squares[i], 2));
        squares[i] = add_rn(squares[i], __shfl_xor_sync(~0u, squares[i], 1));
      }
      return add_rn(add_rn(squares[0], squares[2]), add_rn(squares[1], squares[3]));
    });
    std::uint32_t codes[1];
    rounding.encode(lost, rounding.step_of(scale, absmax), codes);
    if (j >= fours) continue;
    const auto position = static_cast<int>(residual_block_position(p.args, 4 * j / block, block));
    std::uint8_t* out = p.args.codes + (row * row_blocks + position) * (block / 2);
    reinterpret_cast<std::uint16_t*>(out)[j % (block / 4)] = static_cast<std::uint16_t>(codes[0]);
    if (4 * j % block == 0) *scale_place(p, row, position, row_blocks) = scale;
  }
}

// kForm: an ActivationForm, or -1 for that of the call. 64 registers a thread leave room for 1024 threads.
template <int kForm, int kSixteens, FusedMode kMode>
__global__ void __launch_bounds__(kSixteens == 1 ? 512 : kMostRowThreads, kSixteens == 1 ? 2 : 1)
    fused_rows(const __grid_constant__ FusedParams p) {
  __shared__ double group_sums[kMostActivationColumns / kSumGroup];
  __shared__ float warp_largest[kMostRowThreads / 32];
  __shared__ float row_factor;
  extern __shared__ __align__(16) unsigned char memory[];
  constexpr bool kGeneral = kMode == FusedMode::general;
  const FusedActivation& args = p.args;
  const ActivationForm form = kForm < 0 ? args.form : static_cast<ActivationForm>(kForm);
  const bool vectors = !kGeneral || p.vectors;
  const int columns = static_cast<int>(args.columns), width = static_cast<int>(args.width);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = p.threads / 32;
  const std::int64_t row = blockIdx.x, bytes = args.dtype == DType::f32 ? 4 : 2;
  const auto row_of = [&](const void* base, std::int64_t stride) -> const void* {
    return static_cast<const char*>(base) + row * stride * bytes;
  };
  const void* x = row_of(args.x, args.x_stride);
  // What meets x; all loads are under way before the first is waited for.
  const void* other = form == ActivationForm::silu_mul                ? row_of(args.up, args.up_stride)
                      : form == ActivationForm::norm && args.residual ? row_of(args.residual, columns)
                                                                      : nullptr;
  float v[kSixteens][16] = {};
  Raw raw_x[kSixteens], raw_other[kSixteens];
  if constexpr (!kGeneral) {
#pragma unroll
    for (int k = 0; k < kSixteens; ++k) {
      const int s = k * p.threads + threadIdx.x;
      if (16 * s >= columns) continue;
      raw_x[k] = Raw::load(x, s);
      if (kForm != static_cast<int>(ActivationForm::plain) && other) raw_other[k] = Raw::load(other, s);
    }
  }
#pragma unroll
  for (int k = 0; k < kSixteens; ++k) {
    const int s = k * p.threads + threadIdx.x;
    if (16 * s >= columns) continue;
    const auto take = [&](const void* from, const Raw& raw, float(&out)[16]) {
      if constexpr (kGeneral)
        load_sixteen(args.dtype, from, s, columns, vectors, out);
      else
        raw.widen(args.dtype, out);
    };
    take(x, raw_x[k], v[k]);
    if (form == ActivationForm::silu_mul) {
      float up[16];
      take(other, raw_other[k], up);
#pragma unroll
      for (int i = 0; i < 16; ++i) v[k][i] = silu_mul(v[k][i], up[i]);
    }
    if (form == ActivationForm::norm) {
      if (other) {
        float residual[16];
        take(other, raw_other[k], residual);
#pragma unroll
        for (int i = 0; i < 16; ++i) v[k][i] = add_rn(residual[i], v[k][i]);
      }
      void* out = args.residual_out ? static_cast<char*>(args.residual_out) + row * columns * bytes : nullptr;
      round_and_store(args.dtype, out, s, columns, vectors, v[k]);
    }
  }

  // the norm
  if (form == ActivationForm::norm) {
#pragma unroll
    for (int k = 0; k < kSixteens; ++k) {
      double sum = sum_of_sixteen_squares(v[k]);
#pragma unroll
      for (int half = 16; half; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
      if (lane == 0) group_sums[k * warps + warp] = sum;
    }
    __syncthreads();
    if (warp == 0) {
      double total = 0;
      for (int first = 0; first * kSumGroup < columns; ++first) total += group_sums[first];
      const float factor = rms_factor(total, columns, args.eps);
      if (lane == 0) row_factor = factor;
    }
    __syncthreads();
    const float factor = row_factor;
#pragma unroll
    for (int k = 0; k < kSixteens; ++k) {
      const int s = k * p.threads + threadIdx.x;
      if (16 * s >= columns) continue;
      float weight[16];
      load_sixteen(args.norm_dtype == DType::bf16 ? DType::bf16 : DType::f32, args.norm_weight, s, columns,
                   vectors, weight);
#pragma unroll
      for (int i = 0; i < 16; ++i) v[k][i] = mul_rn(mul_rn(v[k][i], factor), weight[i]);
    }
  }

  // the order
  const Shared shared(memory, p);
  if (p.stage) {
#pragma unroll
    for (int k = 0; k < kSixteens; ++k) {
      const int s = k * p.threads + threadIdx.x;
      if (16 * s >= columns) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        *reinterpret_cast<float4*>(shared.row + staged_at(16 * s + 4 * i)) = {
            v[k][4 * i], v[k][4 * i + 1], v[k][4 * i + 2], v[k][4 * i + 3]};
    }
    if (args.order) {
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kSixteens; ++k) {
        const int s = k * p.threads + threadIdx.x;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          const int from = 16 * s < width ? __ldg(args.order + 16 * s + i) : -1;
          v[k][i] = from < 0 ? 0.0f : shared.row[staged_at(from)];
        }
      }
    }
  }

  // the scales
  const bool nvfp4 = args.spec.format == Format::nvfp4;
  float absmax[kSixteens];
  float largest = 0.0f;
#pragma unroll
  for (int k = 0; k < kSixteens; ++k) {
    absmax[k] = largest_magnitude(v[k]);
    largest = larger_or_nan(largest, absmax[k]);
    if (!nvfp4) absmax[k] = larger_or_nan(absmax[k], __shfl_xor_sync(~0u, absmax[k], 1));
  }
  if (!is_finite(largest) && args.not_finite) *args.not_finite = 1;
  float global = 1.0f;
  if (nvfp4 && args.scope == ScaleScope::tensor) global = __ldg(args.global_scale);
  if (nvfp4 && args.scope == ScaleScope::row) {
    for (int step = 16; step; step /= 2)
      largest = larger_or_nan(largest, __shfl_xor_sync(~0u, largest, step));
    if (lane == 0) warp_largest[warp] = largest;
    __syncthreads();
    for (int i = 0; i < warps; ++i) largest = larger_or_nan(largest, warp_largest[i]);
    global = nvfp4_global_scale(args.spec.global_scale, largest, DType::f32);
    if (threadIdx.x == 0) args.row_scales[row] = global;
  }

  // the main blocks
  const Rounding<kMode> rounding(p, global);
  const int block = nvfp4 ? 16 : 32;
  const int row_blocks = p.row_blocks;
#pragma unroll
  for (int k = 0; k < kSixteens; ++k) {
    const int s = k * p.threads + threadIdx.x;
    if (16 * s >= width) continue;
    const std::uint8_t scale = rounding.best_scale(absmax[k], [&](const Step& step) {
      float squares[16];
      squared_errors(v[k], step, rounding.powers, squares);
#pragma unroll
      for (int i = 0; i < 8; ++i) squares[i] = add_rn(squares[i], squares[i + 8]);
#pragma unroll
      for (int i = 0; i < 4; ++i) squares[i] = add_rn(squares[i], squares[i + 4]);
      return add_rn(add_rn(squares[0], squares[2]), add_rn(squares[1], squares[3]));
    });
    const Step step = rounding.step_of(scale, absmax[k]);
    std::uint32_t words[2];
    rounding.encode(v[k], step, words);
    const int number = nvfp4 ? s : s / 2;
    const int position = args.layout == ResidualLayout::appended
                             ? number
                             : static_cast<int>(main_block_position(args, number, block));
    std::uint8_t* out =
        args.codes + row * row_blocks * (block / 2) + position * (block / 2) + (nvfp4 ? 0 : s % 2 * 8);
    *reinterpret_cast<uint2*>(out) = {words[0], words[1]};
    if (nvfp4 || s % 2 == 0) *scale_place(p, row, position, row_blocks) = scale;
    if (args.chosen_count) {
      reinterpret_cast<uint2*>(shared.codes)[s] = {words[0], words[1]};
      shared.steps[s] = step.step;
    }
  }

  // the residual blocks
  if (args.chosen_count) {
    __syncthreads();
    round_residuals(rounding, shared, row, row_blocks);
  }
  if (args.scale_layout ==
      ScaleLayout::tiles_128x4) {  // zeros beside this row's scales; the last row's block clears the rest
    const int padded = (row_blocks + 3) / 4 * 4;
    if (static_cast<int>(threadIdx.x) < padded - row_blocks)
      args.scales[swizzled_offset(row, row_blocks + threadIdx.x, row_blocks)] = 0;
    if (row == args.rows - 1)
      for (std::int64_t r = args.rows; r % 128; ++r)
        for (int c = threadIdx.x; c < padded; c += p.threads)
          args.scales[swizzled_offset(r, c, row_blocks)] = 0;
  }
}

}  // namespace halfbyte::cuda
