// Budgets of bits: kept, well spent (against every possible choice), and the same whenever asked.
#include "quantize/bit_budget.h"

#include <gtest/gtest.h>

#include <random>

#include "core/fail.h"

namespace halfbyte {
namespace {

struct Spent {
  double bits = 0, error = 0;
};

Spent spend(std::span<const BudgetedLinear> linears, const std::vector<std::size_t>& chosen) {
  Spent spent;
  double weights = 0;
  for (std::size_t l = 0; l < linears.size(); ++l) {
    const BitChoice& choice = linears[l].choices[chosen[l]];
    spent.bits += static_cast<double>(linears[l].weights) * choice.bits;
    spent.error += choice.error;
    weights += static_cast<double>(linears[l].weights);
  }
  spent.bits /= weights;
  return spent;
}

TEST(BitBudget, GoesWhereItSavesMost) {
  const std::vector<BudgetedLinear> linears{
      {"a", 100, {{4, 1.0}, {8, 0.1}}}, {"b", 100, {{4, 0.5}, {8, 0.4}}}, {"c", 100, {{8, 0.2}, {4, 0.9}}}};
  EXPECT_EQ(choose_within_budget(linears, 4), (std::vector<std::size_t>{0, 0, 1}));
  EXPECT_EQ(choose_within_budget(linears, 5.4), (std::vector<std::size_t>{1, 0, 1}));
  EXPECT_EQ(choose_within_budget(linears, 6.7), (std::vector<std::size_t>{1, 0, 0}));
  EXPECT_EQ(choose_within_budget(linears, 100), (std::vector<std::size_t>{1, 1, 0}));
  EXPECT_THROW(choose_within_budget(linears, 3.9), Error);
}

TEST(BitBudget, NeverExceedsTheBudgetAndIsNearTheBestOfAll) {
  std::mt19937 random(1);
  const auto uniform = [&] { return static_cast<double>(random() % 1000) / 1000; };
  double mean = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<BudgetedLinear> linears;
    for (int l = 0; l < 6; ++l) {
      const double error = 0.1 + uniform();
      linears.push_back({"",
                         100 + static_cast<std::int64_t>(random() % 900),
                         {{16, 0}, {4.5, error}, {8.25, error * 0.3 * uniform()}}});
    }
    const double budget = 4.5 + 11 * uniform();
    const std::vector<std::size_t> chosen = choose_within_budget(linears, budget);
    const Spent found = spend(linears, chosen);
    EXPECT_LE(found.bits, budget * (1 + 1e-12));
    double best = 1e9, worst = 0;
    for (int code = 0; code < 729; ++code) {
      std::vector<std::size_t> all;
      for (int l = 0, rest = code; l < 6; ++l, rest /= 3) all.push_back(static_cast<std::size_t>(rest % 3));
      const Spent spent = spend(linears, all);
      worst = std::max(worst, spent.error);
      if (spent.bits <= budget) best = std::min(best, spent.error);
    }
    const double missed = worst > best ? (found.error - best) / (worst - best) : 0;
    EXPECT_LE(missed, 0.5) << trial;  // six lumps do not fill every budget
    mean += missed / 200;
    EXPECT_EQ(choose_within_budget(linears, budget), chosen);
  }
  EXPECT_LE(mean, 0.02);
}

}  // namespace
}  // namespace halfbyte
