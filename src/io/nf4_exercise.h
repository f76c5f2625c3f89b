// The binary file of the NF4 dequantization exercise (InfiniTensor's Learning-CUDA): one doubly quantized matrix.
//   header  i64 rows, i64 columns, i32 block size: 20 bytes, little-endian, no padding
//   data    packed weights u8 [ceil(rows * columns / 2)], absmax codes u8 [blocks], nested absmax f16 [groups],
//           map f16 [256], offset f32;  blocks = ceil(rows * columns / block size), over row ends
//   group   blocks that share a nested absmax: not in the file; it follows from the file's length, 256 where that fits
// The exercise leaves open which nibble of a byte comes first and what the offset is added to. What bitsandbytes does is
// the default here: the high nibble, and scale = map[code] * nested + offset. Both can be chosen otherwise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/tensor.h"

namespace halfbyte {

struct Nf4Exercise {
  std::int64_t rows = 0, columns = 0, block = 64, group = 256;
  Array<std::uint8_t> codes;          // [ceil(rows * columns / 2)]
  Array<std::uint8_t> absmax;         // [blocks]
  std::vector<std::uint16_t> nested;  // f16 [groups]
  std::vector<std::uint16_t> map;     // f16 [256]
  float offset = 0.0f;

  std::int64_t elements() const { return rows * columns; }
};

struct Nf4ExerciseOptions {
  std::int64_t group = 0;  // 0: from the file's length
  bool low_nibble_first = false;
};

// Reads the whole file. Throws bad_input in one sentence where it is truncated, too long or inconsistent. The codes are
// returned high nibble first whatever the file has.
Nf4Exercise read_nf4_exercise(const std::filesystem::path& path, const Nf4ExerciseOptions& options = {});

// Writes it, high nibble first unless asked otherwise.
void write_nf4_exercise(const std::filesystem::path& path, const Nf4Exercise& matrix,
                        bool low_nibble_first = false);

// Bytes of such a file.
std::int64_t nf4_exercise_bytes(std::int64_t elements, std::int64_t block, std::int64_t group);

}  // namespace halfbyte
