// E2M1   levels  0 0.5 1 1.5 2 3 4 6 and their negatives: code = sign << 3 | index; code 8 is -0; no Inf, NaN
//        encode  nearest even on the magnitude, saturating: everything above 5, Inf too, becomes 6. The sign
//                bit is kept, so -0 and small negative numbers become code 8. NaN becomes code 7 (+6), as in
//                CUDA
//        source  OCP Microscaling Formats (MX) Specification 1.0; equal to ml_dtypes 0.6 and CUDA 13.0 on all
//                BF16 patterns that are not NaN
#pragma once

#include "formats/hd.h"

namespace halfbyte {

inline constexpr float kE2m1Max = 6.0f;

// Index 0..7 of the level nearest to a magnitude; ties go to the even index. NaN gives 7.
HB_HD constexpr std::uint8_t e2m1_index(float magnitude) {
  const int index = !(magnitude <= 0.25f) + !(magnitude < 0.75f) + !(magnitude <= 1.25f) +
                    !(magnitude < 1.75f) + !(magnitude <= 2.5f) + !(magnitude < 3.5f) + !(magnitude <= 5.0f);
  return static_cast<std::uint8_t>(index);
}

HB_HD constexpr std::uint8_t e2m1_encode(float x) {
  const std::uint8_t sign = !is_nan(x) && sign_bit(x) ? 8 : 0;
  return static_cast<std::uint8_t>(e2m1_index(abs_value(x)) | sign);
}

// The same with the sign bit set only below zero, as compressed-tensors and ModelOpt write it: -0 becomes
// code 0.
HB_HD constexpr std::uint8_t e2m1_encode_unsigned_zero(float x) {
  return static_cast<std::uint8_t>(e2m1_index(abs_value(x)) | (x < 0.0f ? 8 : 0));
}

// The upper four bits are ignored.
HB_HD constexpr float e2m1_decode(std::uint8_t code) {
  constexpr float kLevels[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return kLevels[code & 15u];
}

static_assert([] {
  for (std::uint8_t code = 0; code < 16; ++code)
    if (e2m1_encode(e2m1_decode(code)) != code) return false;
  return true;
}());
static_assert(e2m1_encode(0.25f) == 0 && e2m1_encode(0.75f) == 2 && e2m1_encode(-5.0f) == 14 &&
              e2m1_encode(5.1f) == 7);

}  // namespace halfbyte
