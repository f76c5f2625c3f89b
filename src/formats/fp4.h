// FP4    levels  {0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4} for codes 0..7, their negatives for 9..15; code 8 is
//                a second +0. This is bitsandbytes' own type, not E2M1
//        scale   absmax per block of 64 (32..4096) of the flattened tensor: float32, or double (dynamic8.h)
//        value   R32(level * absmax), then at most one rounding to BF16 or FP16
//        encode  the midpoints between neighbouring levels that lie strictly below the normalised value,
//                counted in the order of value. The midpoint of codes 0 and 8 is 0, so (-1/384, 0] becomes 0
//                and (0, 1/384] becomes 8; NaN gives 3. encode(decode(8)) is 0, all other codes come back
//        bytes   high nibble first (packing.h); an odd count is filled up with code 0
//        source  the CPU path of bitsandbytes 0.50.2, scaling in bnb_block.h; its CUDA path gives other zeros
//                and differs at a few thresholds
#pragma once

#include "formats/hd.h"

namespace halfbyte {

// The upper four bits are ignored.
HB_HD constexpr float fp4_decode(std::uint8_t code) {
  constexpr float kTwelfths[16] = {0.0f, 0.0625f,  8.0f,  12.0f,  4.0f,  6.0f,  2.0f,  3.0f,
                                   0.0f, -0.0625f, -8.0f, -12.0f, -4.0f, -6.0f, -2.0f, -3.0f};
  return kTwelfths[code & 15u] / 12.0f;
}

// The code at place `rank` (0..15) when the codes are sorted by value.
HB_HD constexpr std::uint8_t fp4_code_at(int rank) {
  constexpr std::uint8_t kOrder[16] = {11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3};
  return kOrder[rank];
}

// Midpoint between the levels of rank i and i + 1, i = 0..14.
HB_HD constexpr float fp4_threshold(int i) {
  return add_rn(fp4_decode(fp4_code_at(i)), fp4_decode(fp4_code_at(i + 1))) / 2.0f;
}

HB_HD constexpr std::uint8_t fp4_encode(float normalised) {
  int rank = 0;
  for (int i = 0; i < 15; ++i) rank += !(normalised <= fp4_threshold(i));
  return fp4_code_at(rank);
}

static_assert([] {
  for (std::uint8_t code = 0; code < 16; ++code)
    if (fp4_encode(fp4_decode(code)) != (code == 8 ? 0 : code)) return false;
  return float_bits(fp4_decode(1)) == 0x3BAAAAABu && fp4_encode(-0.002f) == 0 && fp4_encode(0.002f) == 8;
}());

}  // namespace halfbyte
