// MXFP8  levels  E4M3 (default, largest 448) or E5M2 (largest 57344), one byte a value
//        scale   one E8M0 (a power of two) per block of 32 along a row; rules in mx.h
//        value   R32(element * 2^(e - 127)), exact unless it is subnormal in float32
//        encode  x / scale, nearest even, saturating, the sign of -0 kept; finite input never gives Inf or
//                NaN codes. compressed_tensors: the quotient is rounded to the tensor's own type first
//        limits  with code 0 (2^-127) magnitudes up to 2^-137 (E4M3) or 2^-144 (E5M2) become zeros
//        source  OCP MX 1.0; compressed-tensors 0.20.1, torchao 0.18.0 (E4M3)
#pragma once

#include "formats/e4m3.h"
#include "formats/e5m2.h"
#include "formats/mx.h"

namespace halfbyte {

namespace detail {
HB_HD constexpr float mx_quotient(MxScaleRule rule, float x, float scale, DType source) {
  return rule == MxScaleRule::compressed_tensors ? round_to_dtype(source, x / scale) : x / scale;
}
}  // namespace detail

HB_HD constexpr std::uint8_t mxfp8_e4m3_encode(MxScaleRule rule, float x, float scale, DType source) {
  return e4m3_encode(detail::mx_quotient(rule, x, scale, source));
}
HB_HD constexpr std::uint8_t mxfp8_e5m2_encode(MxScaleRule rule, float x, float scale, DType source) {
  return e5m2_encode(detail::mx_quotient(rule, x, scale, source));
}
HB_HD constexpr float mxfp8_e4m3_decode(std::uint8_t code, float scale) {
  return mul_rn(e4m3_decode(code), scale);
}
HB_HD constexpr float mxfp8_e5m2_decode(std::uint8_t code, float scale) {
  return mul_rn(e5m2_decode(code), scale);
}

static_assert(mxfp8_e4m3_encode(MxScaleRule::floor, 500.0f, 1.0f, DType::f32) == 0x7E);

}  // namespace halfbyte
