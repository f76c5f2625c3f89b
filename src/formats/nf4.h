// NF4    levels  16 quantiles of a normal distribution in [-1, 1], 0 and both ends among them (table below)
//        scale   absmax per block of 64 (32..4096) of the flattened tensor: float32, or double (dynamic8.h)
//        value   R32(level * absmax), then at most one rounding to BF16 or FP16
//        encode  number of midpoints strictly below the normalised value: a tie takes the lower code; NaN: 15
//        bytes   high nibble first (packing.h); an odd count is filled up with code 7, the zero
//        source  bitsandbytes 0.50.2; scaling in bnb_block.h
#pragma once

#include "formats/hd.h"

namespace halfbyte {

// The upper four bits are ignored.
HB_HD constexpr float nf4_decode(std::uint8_t code) {
  constexpr float kLevels[16] = {-1.0f,
                                 -0.6961928009986877f,
                                 -0.5250730514526367f,
                                 -0.39491748809814453f,
                                 -0.28444138169288635f,
                                 -0.18477343022823334f,
                                 -0.09105003625154495f,
                                 0.0f,
                                 0.07958029955625534f,
                                 0.16093020141124725f,
                                 0.24611230194568634f,
                                 0.33791524171829224f,
                                 0.44070982933044434f,
                                 0.5626170039176941f,
                                 0.7229568362236023f,
                                 1.0f};
  return kLevels[code & 15u];
}

// Midpoint between levels i and i + 1, i = 0..14.
HB_HD constexpr float nf4_threshold(int i) {
  return add_rn(nf4_decode(static_cast<std::uint8_t>(i)), nf4_decode(static_cast<std::uint8_t>(i + 1))) /
         2.0f;
}

inline constexpr std::uint8_t kNf4Zero = 7;

HB_HD constexpr std::uint8_t nf4_encode(float normalised) {
  std::uint8_t code = 0;
  for (int i = 0; i < 15; ++i) code = static_cast<std::uint8_t>(code + !(normalised <= nf4_threshold(i)));
  return code;
}

static_assert(
    [] {
      constexpr std::uint32_t kThresholds[15] = {0xBF591CD8, 0xBF1C5270, 0xBEEB8480, 0xBEADEA76, 0xBE703CEC,
                                                 0xBE0D38BC, 0xBD3A7871, 0x3D22FAFF, 0x3DF64862, 0x3E5067E0,
                                                 0x3E9582D4, 0x3EC753F9, 0x3F006D04, 0x3F248DAF, 0x3F5C89DA};
      for (int i = 0; i < 15; ++i)
        if (float_bits(nf4_threshold(i)) != kThresholds[i]) return false;
      for (std::uint8_t code = 0; code < 16; ++code)
        if (nf4_encode(nf4_decode(code)) != code) return false;
      return nf4_encode(0.0f) == kNf4Zero;
    }(),
    "the midpoints are those of bitsandbytes");

}  // namespace halfbyte
