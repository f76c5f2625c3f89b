// The 128x4 tile order of block scales against torchao, and there and back.
#include "formats/swizzle.h"

#include <gtest/gtest.h>

#include "halfbyte/error.h"
#include "tests/support/golden.h"

namespace halfbyte {
namespace {

TEST(Swizzle, MatchesTorchao) {
  const test::Golden golden("swizzle.safetensors");
  int shapes = 0;
  for (const NamedTensor& tensor : golden.file().tensors()) {
    if (!tensor.name.ends_with(".plain")) continue;
    ++shapes;
    const std::int64_t rows = tensor.view.shape[0], columns = tensor.view.shape[1];
    const auto plain = golden.bytes(tensor.name);
    const auto blocked = golden.bytes(tensor.name.substr(0, tensor.name.size() - 5) + "blocked");
    std::vector<std::uint8_t> tiled(static_cast<std::size_t>(swizzled_bytes(rows, columns)), 0xEE);
    swizzle_scales(plain, rows, columns, tiled);
    EXPECT_EQ(tiled, blocked) << tensor.name;
    std::vector<std::uint8_t> back(plain.size());
    unswizzle_scales(tiled, rows, columns, back);
    EXPECT_EQ(back, plain) << tensor.name;
  }
  EXPECT_EQ(shapes, 4);
}

TEST(Swizzle, OffsetsAreAPermutation) {
  const std::int64_t rows = 256, columns = 12;
  std::vector<int> seen(static_cast<std::size_t>(swizzled_bytes(rows, columns)));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      ++seen.at(static_cast<std::size_t>(swizzled_offset(row, column, columns)));
  for (const int count : seen) EXPECT_EQ(count, 1);
}

TEST(Swizzle, RefusesWrongSizes) {
  std::vector<std::uint8_t> plain(12), tiled(512);
  EXPECT_THROW(swizzle_scales(plain, 3, 5, tiled), Error);
  EXPECT_THROW(unswizzle_scales(std::span(tiled).first(500), 3, 4, plain), Error);
}

}  // namespace
}  // namespace halfbyte
