// The NF4 exercise's file: written and read back, group sizes found, and every kind of wrong file refused in a sentence.
#include "io/nf4_exercise.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

Nf4Exercise sample(std::int64_t rows, std::int64_t columns, std::int64_t block, std::int64_t group) {
  Nf4Exercise matrix;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.block = block;
  matrix.group = group;
  const std::int64_t blocks = ceil_div(rows * columns, block);
  matrix.codes = Array<std::uint8_t>(ceil_div(rows * columns, 2));
  matrix.absmax = Array<std::uint8_t>(blocks);
  for (std::int64_t i = 0; i < matrix.codes.size(); ++i)
    matrix.codes[i] = static_cast<std::uint8_t>(i * 37 + 1);
  for (std::int64_t i = 0; i < blocks; ++i) matrix.absmax[i] = static_cast<std::uint8_t>(i * 11);
  for (std::int64_t i = 0; i < ceil_div(blocks, group); ++i)
    matrix.nested.push_back(static_cast<std::uint16_t>(0x3000 + i));
  for (int i = 0; i < 256; ++i) matrix.map.push_back(static_cast<std::uint16_t>(i));
  matrix.offset = 0.25f;
  return matrix;
}

TEST(Nf4Exercise, ComesBackAsItWasWritten) {
  const test::Scratch scratch;
  for (const auto& [rows, columns, block, group] :
       {std::tuple{3, 7, 64, 256}, std::tuple{64, 300, 64, 256}, std::tuple{129, 257, 32, 256},
        std::tuple{40, 64, 128, 4}}) {
    const Nf4Exercise matrix = sample(rows, columns, block, group);
    for (const bool low : {false, true}) {
      write_nf4_exercise(scratch / "m.bin", matrix, low);
      EXPECT_EQ(std::filesystem::file_size(scratch / "m.bin"),
                static_cast<std::uintmax_t>(nf4_exercise_bytes(matrix.elements(), block, group)));
      const Nf4Exercise back = read_nf4_exercise(scratch / "m.bin", {.low_nibble_first = low});
      EXPECT_EQ(back.rows, rows);
      EXPECT_EQ(back.columns, columns);
      EXPECT_EQ(back.block, block);
      EXPECT_EQ(back.offset, 0.25f);
      EXPECT_EQ(back.nested, matrix.nested);
      EXPECT_EQ(back.map, matrix.map);
      EXPECT_TRUE(std::equal(back.codes.begin(), back.codes.end(), matrix.codes.begin()));
      EXPECT_TRUE(std::equal(back.absmax.begin(), back.absmax.end(), matrix.absmax.begin()));
    }
  }
}

TEST(Nf4Exercise, HasAHeaderOfTwentyBytes) {
  const test::Scratch scratch;
  write_nf4_exercise(scratch / "m.bin", sample(2, 64, 64, 256));
  const std::string bytes = test::read_all(scratch / "m.bin");
  EXPECT_EQ(bytes.substr(0, 20), std::string("\x02\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\x40\0\0\0", 20));
  EXPECT_EQ(bytes[20], 1);  // the first byte of codes
  EXPECT_EQ(bytes.size(), 20u + 64 + 2 + 2 + 512 + 4);
}

TEST(Nf4Exercise, FindsTheGroupFromTheLength) {
  const test::Scratch scratch;
  write_nf4_exercise(scratch / "m.bin", sample(64, 64, 64, 16));  // 64 blocks in 4 groups
  EXPECT_EQ(read_nf4_exercise(scratch / "m.bin").group, 16);
  EXPECT_NE(test::message_of([&] { read_nf4_exercise(scratch / "m.bin", {.group = 256}); }).find("expected"),
            std::string::npos);
}

TEST(Nf4Exercise, RefusesEveryTruncation) {
  const test::Scratch scratch;
  write_nf4_exercise(scratch / "m.bin", sample(5, 33, 32, 256));
  const std::string bytes = test::read_all(scratch / "m.bin");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto thrown =
        test::thrown_by([&] { read_nf4_exercise(scratch.write("cut.bin", bytes.substr(0, size))); });
    ASSERT_TRUE(thrown) << size;
    ASSERT_EQ(thrown->kind, ErrorKind::bad_input) << size;
  }
  EXPECT_TRUE(test::thrown_by([&] { read_nf4_exercise(scratch.write("long.bin", bytes + "x")); }));
}

TEST(Nf4Exercise, RefusesHeadersThatCannotBe) {
  const test::Scratch scratch;
  write_nf4_exercise(scratch / "m.bin", sample(5, 33, 32, 256));
  const std::string bytes = test::read_all(scratch / "m.bin");
  auto with = [&](std::size_t at, std::int64_t value, std::size_t width) {
    std::string changed = bytes;
    std::memcpy(changed.data() + at, &value, width);
    return test::message_of([&] { read_nf4_exercise(scratch.write("bad.bin", changed)); });
  };
  EXPECT_NE(with(0, -1, 8).find("rows"), std::string::npos);
  EXPECT_NE(with(0, 0, 8).find("rows"), std::string::npos);
  EXPECT_NE(with(8, std::int64_t{1} << 62, 8).find("columns"), std::string::npos);
  EXPECT_NE(with(8, 1 << 30, 8).find("cannot hold"), std::string::npos);
  EXPECT_NE(with(16, 48, 4).find("block size 48"), std::string::npos);
  EXPECT_NE(with(16, 0, 4).find("block size 0"), std::string::npos);
  EXPECT_NE(with(16, 64, 4).find("truncated or inconsistent"), std::string::npos);
}

}  // namespace
}  // namespace halfbyte
