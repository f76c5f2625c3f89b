// The two protocols: which tokens a window holds and which text is tokenized.
#include "eval/text.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/fail.h"

namespace halfbyte {
namespace {

TEST(JoinRows, KeepsNewlinesAndEmptiesBlankRows) {
  EXPECT_EQ(join_rows(" = A = \n \nb\n"), " = A = \n\n\n\n\nb\n");
  EXPECT_EQ(join_rows("a\nb"), "a\n\n\nb");
  EXPECT_EQ(join_rows("a\r\nb\rc"), "a\n\n\nb\n\n\nc");
  EXPECT_EQ(join_rows(""), "");
  EXPECT_EQ(join_rows("\n"), "");
  EXPECT_EQ(join_rows("\t \n\n x"), "\n\n\n\n x");
}

std::vector<std::int32_t> ids(int size) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(CutWindows, WindowsAreWholeAndApart) {
  const auto text = ids(11);
  const auto windows = cut_windows(text, Protocol::windows, 4, 0);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0].front(), 0);
  EXPECT_EQ(windows[1].front(), 4);
  EXPECT_EQ(windows[1].back(), 7);
  EXPECT_EQ(cut_windows(text, Protocol::windows, 4, 1).size(), 1u);
  EXPECT_EQ(cut_windows(text, Protocol::windows, 11, 0).size(), 1u);
}

TEST(CutWindows, DocumentScoresEveryTokenOnce) {
  for (int size = 2; size < 40; ++size) {
    const auto text = ids(size);
    for (std::int64_t seq_len = 2; seq_len < 12; ++seq_len) {
      std::vector<std::int32_t> scored;
      for (const TokenWindow& window : cut_windows(text, Protocol::document, seq_len, 0)) {
        EXPECT_LE(static_cast<std::int64_t>(window.size()), seq_len);
        scored.insert(scored.end(), window.begin() + 1, window.end());
      }
      EXPECT_EQ(scored, std::vector<std::int32_t>(text.begin() + 1, text.end()));
    }
  }
}

TEST(CutWindows, RefusesWhatGivesNoWindow) {
  const auto text = ids(5);
  EXPECT_THROW(cut_windows(text, Protocol::windows, 6, 0), Error);
  EXPECT_THROW(cut_windows(text, Protocol::windows, 1, 0), Error);
  EXPECT_THROW(cut_windows(text, Protocol::windows, 2, -1), Error);
  EXPECT_THROW(cut_windows(ids(1), Protocol::document, 4, 0), Error);
  EXPECT_THROW(protocol_from_name("rolling"), Error);
}

}  // namespace
}  // namespace halfbyte
