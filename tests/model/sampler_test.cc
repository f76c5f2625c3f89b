// Greedy choice, the two cuts, and frequencies that follow the softmax.
#include "model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/fail.h"

namespace halfbyte {
namespace {

const std::vector<float> kLogits{0.0f, 2.0f, 1.0f, 2.0f, -1.0f};

std::vector<int> counts(const SamplingOptions& options, int draws) {
  Sampler sampler(options);
  std::vector<int> counts(kLogits.size());
  for (int i = 0; i < draws; ++i)
    ++counts[static_cast<std::size_t>(
        sampler.next(kLogits.data(), static_cast<std::int64_t>(kLogits.size())))];
  return counts;
}

TEST(Sampler, GreedyTakesTheFirstOfEquals) { EXPECT_EQ(counts({}, 5)[1], 5); }

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  const int draws = 40000;
  const auto found = counts({.temperature = 0.7, .seed = 3}, draws);
  double total = 0;
  for (float logit : kLogits) total += std::exp(logit / 0.7);
  for (std::size_t i = 0; i < kLogits.size(); ++i)
    EXPECT_NEAR(found[i] / static_cast<double>(draws), std::exp(kLogits[i] / 0.7) / total, 0.01);
}

TEST(Sampler, CutsLeaveOnlyTheMostLikely) {
  const auto top2 = counts({.temperature = 5, .top_k = 2}, 1000);
  EXPECT_EQ(top2[1] + top2[3], 1000);
  EXPECT_GT(top2[3], 300);
  // exp(2) twice is 78 % of the mass: 0.7 needs both, 0.3 the first alone.
  EXPECT_EQ(counts({.temperature = 1, .top_p = 0.3}, 100)[1], 100);
  const auto both = counts({.temperature = 1, .top_p = 0.7}, 1000);
  EXPECT_EQ(both[1] + both[3], 1000);
}

TEST(Sampler, SameSeedSameTokens) {
  const std::int64_t vocab = static_cast<std::int64_t>(kLogits.size());
  Sampler a({.temperature = 1, .seed = 9}), b({.temperature = 1, .seed = 9}),
      c({.temperature = 1, .seed = 10});
  int differ = 0;
  for (int i = 0; i < 100; ++i) {
    const auto next = a.next(kLogits.data(), vocab);
    EXPECT_EQ(next, b.next(kLogits.data(), vocab));
    differ += next != c.next(kLogits.data(), vocab);
  }
  EXPECT_GT(differ, 20);
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.temperature = NAN}), Error);
  EXPECT_THROW(Sampler({.top_k = -1}), Error);
  EXPECT_THROW(Sampler({.top_p = 0}), Error);
  EXPECT_THROW(Sampler({.top_p = 1.5}), Error);
}

}  // namespace
}  // namespace halfbyte
