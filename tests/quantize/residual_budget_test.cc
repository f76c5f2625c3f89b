// Residual channels under a budget: scores against plain loops, and what is taken for it.
#include "quantize/residual_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/fail.h"
#include "formats/source_dtype.h"

namespace halfbyte {
namespace {

TEST(SpreadResiduals, TakesTheGroupsThatSaveMostForTheirBytes) {
  // Blocks of 2. Input a: 8 channels, 4 rows; input b: 8 channels, 1 row. All bytes: 40.
  const std::vector<ResidualScore> scores{
      {.input = "a", .rows = 4, .share = {0, 8, 0, 8, 1, 2, 0, 1}},  // groups 16, 3 (, 1, 0): 4, 0.75 a row
      {.input = "b", .rows = 1, .share = {.1, .1, .5, .1, .9, .1, .2, .1}}};  // groups 1.4, .3 (..)
  const auto spread = [&](double budget) {
    std::vector<std::int64_t> counts;
    for (const ResidualChoice& choice : spread_residuals(scores, budget, 2))
      counts.push_back(choice.residual);
    return counts;
  };
  EXPECT_EQ(spread(0.0), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(spread(0.05), (std::vector<std::int64_t>{0, 2})) << "8 bytes of a do not fit, 2 of b do";
  EXPECT_EQ(spread(0.2), (std::vector<std::int64_t>{2, 0})) << "what saves most comes first";
  EXPECT_EQ(spread(0.25), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(spread(1.0), (std::vector<std::int64_t>{4, 4})) << "at most half of the channels";
  const std::vector<ResidualChoice> choices = spread_residuals(scores, 0.25, 2);
  EXPECT_EQ(choices[0].ranking, (std::vector<std::int32_t>{1, 3, 5, 4, 7, 0, 2, 6}));
  EXPECT_EQ(choices[1].ranking, (std::vector<std::int32_t>{4, 2, 6, 0, 1, 3, 5, 7}));
}

TEST(SpreadResiduals, StaysWithinTheBudgetAndLeavesNothingBetterOut) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<ResidualScore> scores(1 + random() % 5);
    double all = 0;
    for (ResidualScore& score : scores) {
      score.rows = 1 + static_cast<std::int64_t>(random() % 50);
      score.share.resize(16 * (1 + random() % 6) + random() % 16);
      for (double& share : score.share) share = static_cast<double>(random() % 1000);
      all += static_cast<double>(score.rows) * static_cast<double>(score.share.size());
    }
    const double budget = 0.01 * static_cast<double>(random() % 30);
    const std::vector<ResidualChoice> choices = spread_residuals(scores, budget, 16);
    const auto benefit = [&](std::size_t i, std::int64_t first) {
      double sum = 0;
      for (std::int64_t j = first; j < first + 16; ++j)
        sum += scores[i].share[static_cast<std::size_t>(choices[i].ranking[static_cast<std::size_t>(j)])];
      return sum / static_cast<double>(scores[i].rows);
    };
    double used = 0, least = 1e300;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      used += static_cast<double>(choices[i].residual * scores[i].rows);
      EXPECT_EQ(choices[i].residual % 16, 0);
      EXPECT_LE(choices[i].residual, static_cast<std::int64_t>(scores[i].share.size()) / 2);
      if (choices[i].residual) least = std::min(least, benefit(i, choices[i].residual - 16));
    }
    EXPECT_LE(used, budget * all);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (choices[i].residual + 16 > static_cast<std::int64_t>(scores[i].share.size()) / 2) continue;
      if (used + 16.0 * static_cast<double>(scores[i].rows) <= budget * all)
        ADD_FAILURE() << "the next group of " << i << " still fits";
    }
  }
}

TEST(PlanResidualBudget, ScoresAndColumnsOfATinyModel) {
  const Checkpoint checkpoint(std::filesystem::path(HALFBYTE_GOLDEN) / "models" / "smollm2_like");
  ThreadPool pool(2);
  const std::vector<LinearSource> sources{{"model.layers.0.mlp.gate_proj", "model.layers.0.mlp"},
                                          {"model.layers.0.mlp.up_proj", "model.layers.0.mlp"}};
  const std::vector<std::string> names{sources[0].name, sources[1].name};
  const QuantSpec spec{.format = Format::nvfp4};
  const auto make = [&] {
    return make_plan(checkpoint, names,
                     {.weights = spec, .activations = ActivationSpec{.spec = spec}, .keep = {}});
  };
  QuantizePlan plan = make();
  std::map<std::string, ResidualStatistics> statistics;
  ResidualStatistics& seen = statistics["model.layers.0.mlp"];
  for (int k = 0; k < 72; ++k) seen.mean_square.push_back(0.01f * static_cast<float>((k * 31) % 72));
  seen.output_square = {{names[0] + ".weight", 3.0}, {names[1] + ".weight", 0.5}};

  const std::vector<ResidualScore> scores = score_residuals(checkpoint, plan, sources, statistics, pool);
  ASSERT_EQ(scores.size(), 1u);
  EXPECT_EQ(scores[0].rows, 2 * 104);
  for (std::int64_t k : {0, 17, 71}) {
    double expected = 0;
    for (const std::string& name : names) {
      const TensorView& w = *checkpoint.plain(name + ".weight");
      double sum = 0;
      for (std::int64_t n = 0; n < w.shape[0]; ++n)
        sum += std::pow(static_cast<double>(load_element(w.dtype, w.data.data(), n * 72 + k)), 2);
      expected += sum / (2 * seen.output_square.at(name + ".weight"));
    }
    expected *= static_cast<double>(seen.mean_square[static_cast<std::size_t>(k)]);
    EXPECT_NEAR(scores[0].share[static_cast<std::size_t>(k)], expected, 1e-12 + 1e-9 * expected);
  }

  plan_residual_budget(checkpoint, plan, sources, statistics, 25, pool);
  ASSERT_EQ(plan.inputs.size(), 1u);
  const InputTransform& transform = plan.inputs[0].transform;
  EXPECT_EQ(transform.info.residual, 16);
  EXPECT_TRUE(transform.info.shared_scale);
  EXPECT_EQ(transform.info.width, 80 + 16);
  EXPECT_EQ(transform.columns[71], 71);
  EXPECT_EQ(transform.columns[80], plan.inputs[0].ranking[0]);

  QuantizePlan none = make();
  plan_residual_budget(checkpoint, none, sources, statistics, 0, pool);
  EXPECT_TRUE(none.inputs.empty());
  EXPECT_THROW(plan_residual_budget(checkpoint, none, sources, statistics, -1, pool), Error);
  EXPECT_THROW(plan_residual_budget(checkpoint, none, sources, statistics, 51, pool), Error);
}

}  // namespace
}  // namespace halfbyte
