// The piece of a tensor that the CPU quantizer hands to its vector code at once.
#pragma once

#include "core/dtype.h"
#include "formats/formats.h"

namespace halfbyte {

// Consecutive elements of one row (nf4, fp4: of the flattened tensor) that begin at a block.
inline constexpr std::int64_t kSegment = 4096;  // a multiple of every block size

struct QuantizeSegment {
  const QuantSpec* spec;
  DType source;
  float global;           // nvfp4
  const float* x;         // [count <= kSegment], then zeros up to a multiple of 128
  std::int64_t count;     // elements
  std::int64_t block;     // elements of a full block
  std::uint8_t* codes;    // [count] one code a byte, room for kSegment
  std::uint8_t* scales8;  // [ceil(count / block)], or unused
  float* scales;          // [ceil(count / block)], or unused; int8: the scale of the row, given
};

}  // namespace halfbyte
