// Nibble orders: where in a byte two 4-bit codes lie. Elements 2i and 2i + 1 share byte i.
//   low first   byte = code[2i] | code[2i + 1] << 4    NVFP4, MXFP4 and INT4, each row starting a new byte
//   high first  byte = code[2i] << 4 | code[2i + 1]    NF4 and FP4 (bitsandbytes), over the flattened tensor
#pragma once

#include "formats/hd.h"

namespace halfbyte {

enum class NibbleOrder : std::uint8_t { low_first, high_first };

constexpr std::int64_t packed_bytes(std::int64_t codes) { return codes / 2 + codes % 2; }

// codes[count] -> bytes[packed_bytes(count)]; an odd count is filled up with the code `pad`.
HB_HD constexpr void pack_nibbles(NibbleOrder order, const std::uint8_t* codes, std::int64_t count,
                                  std::uint8_t* bytes, std::uint8_t pad = 0) {
  const int first = order == NibbleOrder::low_first ? 0 : 4, second = 4 - first;
  for (std::int64_t i = 0; i < count / 2; ++i)
    bytes[i] = static_cast<std::uint8_t>(codes[2 * i] << first | codes[2 * i + 1] << second);
  if (count % 2) bytes[count / 2] = static_cast<std::uint8_t>(codes[count - 1] << first | pad << second);
}

// Code number `index` of packed bytes.
HB_HD constexpr std::uint8_t nibble(NibbleOrder order, const std::uint8_t* bytes, std::int64_t index) {
  const bool high = (index % 2 == 0) == (order == NibbleOrder::high_first);
  return high ? static_cast<std::uint8_t>(bytes[index / 2] >> 4)
              : static_cast<std::uint8_t>(bytes[index / 2] & 15u);
}

}  // namespace halfbyte
