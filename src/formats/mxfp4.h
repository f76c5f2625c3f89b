// MXFP4  levels  0 0.5 1 1.5 2 3 4 6 and their negatives (E2M1, bit 3 is the sign)
//        scale   one E8M0 (a power of two) per block of 32 along a row; rules in mx.h
//        value   level * 2^(e - 127), exact in float32 and in BF16; Inf from 2^128 on
//        encode  x / scale, ties to even, saturating at 6, the sign of -0 kept. compressed_tensors: the
//                quotient in the tensor's own type, sign bit only below zero. modelopt: ties toward zero, and
//                both zeros become code 8
//        bytes   low nibble first (packing.h), each row on its own
//        limits  floor: code 0 takes every block below 2^-124; up to 2^-129 it becomes zeros. The rules that
//                round up (all but floor) may decode an absmax above 2^126 to Inf
//        source  OCP MX 1.0; compressed-tensors 0.20.1, torchao 0.18.0, nvidia-modelopt 0.47.0
#pragma once

#include "formats/e2m1.h"
#include "formats/mx.h"

namespace halfbyte {

HB_HD constexpr std::uint8_t mxfp4_encode(MxScaleRule rule, float x, float scale, DType source) {
  const float quotient = x / scale;
  if (rule == MxScaleRule::compressed_tensors)
    return e2m1_encode_unsigned_zero(round_to_dtype(source, quotient));
  if (rule == MxScaleRule::modelopt) {
    const float a = abs_value(quotient);
    const int index =
        (a > 0.25f) + (a > 0.75f) + (a > 1.25f) + (a > 1.75f) + (a > 2.5f) + (a > 3.5f) + (a > 5.0f);
    return static_cast<std::uint8_t>(index | (quotient <= 0.0f ? 8 : 0));
  }
  return e2m1_encode(quotient);
}

HB_HD constexpr float mxfp4_decode(std::uint8_t code, float scale) {
  return mul_rn(e2m1_decode(code), scale);
}

static_assert(mxfp4_encode(MxScaleRule::floor, 7.5f, 1.0f, DType::f32) == 7);
static_assert(mxfp4_encode(MxScaleRule::modelopt, 0.0f, 1.0f, DType::f32) == 8);

}  // namespace halfbyte
