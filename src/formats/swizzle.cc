// Copies of block scales between rows and the 128x4 tile order.
#include "formats/swizzle.h"

#include <algorithm>

#include "core/fail.h"

namespace halfbyte {

namespace {

void check_sizes(std::size_t plain, std::size_t tiled, std::int64_t rows, std::int64_t columns) {
  const auto count = checked_count({rows, columns});
  if (!count || static_cast<std::int64_t>(plain) != *count)
    fail_input("block scales: {} bytes in row order, expected {} x {}", plain, rows, columns);
  if (static_cast<std::int64_t>(tiled) != swizzled_bytes(rows, columns))
    fail_input("block scales: {} bytes in 128x4 tiles, expected {} for {} x {} scales", tiled,
               swizzled_bytes(rows, columns), rows, columns);
}

}  // namespace

void swizzle_scales(std::span<const std::uint8_t> plain, std::int64_t rows, std::int64_t columns,
                    std::span<std::uint8_t> tiled) {
  check_sizes(plain.size(), tiled.size(), rows, columns);
  std::fill(tiled.begin(), tiled.end(), std::uint8_t{0});
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      tiled[swizzled_offset(row, column, columns)] = plain[row * columns + column];
}

void unswizzle_scales(std::span<const std::uint8_t> tiled, std::int64_t rows, std::int64_t columns,
                      std::span<std::uint8_t> plain) {
  check_sizes(plain.size(), tiled.size(), rows, columns);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      plain[row * columns + column] = tiled[swizzled_offset(row, column, columns)];
}

}  // namespace halfbyte
