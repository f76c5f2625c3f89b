// Division by a number known at launch, as a multiplication and a shift.
#pragma once

#include <cstdint>

#include "formats/hd.h"

namespace halfbyte {

// quotient(n) = n / divisor for every n < 2^31. With l = ceil(log2(divisor)) and m = ceil(2^(31 + l) / divisor) < 2^32,
// m * divisor exceeds 2^(31 + l) by less than 2^l, so n * m / 2^(31 + l) exceeds the quotient by less than 1 / divisor.
struct FastDivide {
  std::uint32_t multiplier = 1u << 31;
  std::uint32_t shift = 31;

  static constexpr FastDivide by(std::uint32_t divisor) {  // 1 <= divisor < 2^31
    std::uint32_t log = 0;
    while ((std::uint64_t{1} << log) < divisor) ++log;
    const std::uint64_t power = std::uint64_t{1} << (31 + log);
    return {static_cast<std::uint32_t>((power + divisor - 1) / divisor), 31 + log};
  }
  HB_HD constexpr std::uint32_t quotient(std::uint32_t n) const {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(n) * multiplier) >> shift);
  }
};

static_assert(FastDivide::by(1).quotient(0x7FFFFFFFu) == 0x7FFFFFFFu && FastDivide::by(7).quotient(48) == 6);
static_assert(FastDivide::by(0x7FFFFFFFu).quotient(0x7FFFFFFEu) == 0 &&
              FastDivide::by(3).quotient(2147483646u) == 715827882u);

}  // namespace halfbyte
