// A table of 16 float32 in 16 registers, looked up four codes at a time with the byte permutation instruction. The same
// code runs on the host, where the tests compare it with the codec for every selector.
#pragma once

#include <cstdint>

#include "formats/hd.h"

namespace halfbyte {

// Byte i of the result is byte (selector >> 4i & 7) of the eight bytes low[0..3], high[0..3].
HB_HD constexpr std::uint32_t byte_permute(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, selector);
#else
  const std::uint64_t bytes = static_cast<std::uint64_t>(high) << 32 | low;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<std::uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7u)) & 0xFFu) << (8 * i);
  return result;
#endif
}

// plane[b][k] holds byte b of the levels 4k .. 4k + 3.
struct ByteTable {
  std::uint32_t plane[4][4];

  // level: code -> float
  template <class Level>
  HB_HD static constexpr ByteTable of(Level level) {
    ByteTable table{};
    for (int b = 0; b < 4; ++b)
      for (int code = 0; code < 16; ++code)
        table.plane[b][code / 4] |= (float_bits(level(static_cast<std::uint8_t>(code))) >> (8 * b) & 0xFFu)
                                    << (8 * (code % 4));
    return table;
  }

  // Levels of the four codes in bits 0..3, 4..7, 8..11 and 12..15 of codes. Per plane, the lower three bits of each code
  // pick a byte among the levels 0..7 and one among 8..15, and bit 3 picks between the two: for code 0xB in place 0 that
  // is selector nibble 0 | 4, the byte from the upper half.
  HB_HD constexpr void look_up(std::uint32_t codes, float (&v)[4]) const {
    const std::uint32_t place = codes & 0x7777u, half = 0x3210u | (codes & 0x8888u) >> 1;
    std::uint32_t byte[4] = {};
    for (int b = 0; b < 4; ++b)
      byte[b] = byte_permute(byte_permute(plane[b][0], plane[b][1], place),
                             byte_permute(plane[b][2], plane[b][3], place), half);
    // Bytes 0 and 1 of elements 0, 1 and of 2, 3; the same of bytes 2 and 3; then whole words.
    const std::uint32_t a = byte_permute(byte[0], byte[1], 0x5140u),
                        b = byte_permute(byte[0], byte[1], 0x7362u);
    const std::uint32_t c = byte_permute(byte[2], byte[3], 0x5140u),
                        d = byte_permute(byte[2], byte[3], 0x7362u);
    v[0] = bits_float(byte_permute(a, c, 0x5410u));
    v[1] = bits_float(byte_permute(a, c, 0x7632u));
    v[2] = bits_float(byte_permute(b, d, 0x5410u));
    v[3] = bits_float(byte_permute(b, d, 0x7632u));
  }
};

}  // namespace halfbyte
