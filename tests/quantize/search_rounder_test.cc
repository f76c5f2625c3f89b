// Scale search under a plan: every column counts by the importance of the channel that it comes from.
#include "quantize/search_rounder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/fail.h"
#include "quantize/hadamard.h"
#include "quantize/scale_search.h"
#include "quantize/smoothquant.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

class SearchRounderTest : public testing::Test {
 protected:
  SearchRounderTest()
      : checkpoint_(std::filesystem::path(HALFBYTE_GOLDEN) / "models" / "smollm2_like"), pool_(2) {
    for (const char* part : {"gate_proj", "up_proj"})
      sources_.push_back({std::string("model.layers.0.mlp.") + part, kInput});
    InputStats& input = stats_.inputs[kInput];
    for (int k = 0; k < 72; ++k) {
      input.absmax.push_back(1.0f + static_cast<float>(k % 7));
      input.mean_square.push_back(0.1f + static_cast<float>((k * 29) % 31));
      residual_[kInput].mean_square.push_back(0.01f * static_cast<float>((k * 13) % 72));
    }
    for (const LinearSource& source : sources_)
      residual_[kInput].output_square[source.name + ".weight"] = 2.0;
  }

  QuantizePlan make() {
    std::vector<std::string> names;
    for (const LinearSource& source : sources_) names.push_back(source.name);
    const QuantSpec spec{.format = Format::nvfp4};
    QuantizePlan plan = make_plan(checkpoint_, names,
                                  {.weights = spec, .activations = ActivationSpec{.spec = spec}, .keep = {}});
    plan.rounding = Rounding::search;
    return plan;
  }

  // Writes the plan and compares with a search by importance worked out here.
  void check(const QuantizePlan& plan, const std::vector<float>& importance) {
    const test::Scratch out;
    SearchRounder rounder(plan, sources_, pool_);
    write_quantized(checkpoint_, plan, out.path(), pool_, {.rounder = &rounder});
    const Checkpoint written(out.path());
    for (const LinearSource& source : sources_) {
      const std::string name = source.name + ".weight";
      InputTransform transform;
      transform.info.channels = transform.info.width = 72;
      if (!plan.inputs.empty()) transform = plan.inputs[0].transform;
      const Array<float> w = transform_weight(*checkpoint_.plain(name), transform, pool_);
      const QuantizedTensor found = written.quantized(name),
                            expected =
                                search_scales({w.data(), static_cast<std::size_t>(w.size())}, found.shape,
                                              {.spec = found.spec,
                                               .importance = importance,
                                               .global_scale = found.global_scale},
                                              pool_);
      EXPECT_TRUE(std::ranges::equal(found.codes, expected.codes)) << name;
      EXPECT_TRUE(std::ranges::equal(found.scales8, expected.scales8)) << name;
    }
  }

  const std::string kInput = "model.layers.0.mlp";
  Checkpoint checkpoint_;
  ThreadPool pool_;
  std::vector<LinearSource> sources_;
  CalibrationStats stats_;
  std::map<std::string, ResidualStatistics> residual_;
};

TEST_F(SearchRounderTest, GoesByMeanSquares) {
  QuantizePlan plan = make();
  plan_importance(checkpoint_, plan, sources_, stats_);
  check(plan, stats_.inputs[kInput].mean_square);
}

TEST_F(SearchRounderTest, OfScaledChannelsAndTheirResiduals) {
  QuantizePlan plan = make();
  plan_smoothquant(checkpoint_, plan, sources_, stats_, {.by = SmoothStatistic::rms}, pool_);
  plan_residual_budget(checkpoint_, plan, sources_, residual_, 25, pool_);
  plan_importance(checkpoint_, plan, sources_, stats_, residual_);
  const InputTransform& transform = plan.inputs[0].transform;
  ASSERT_EQ(transform.info.residual, 16);
  std::vector<float> importance;
  for (std::size_t k = 0; k < 72; ++k)
    importance.push_back(stats_.inputs[kInput].mean_square[k] / (transform.scale[k] * transform.scale[k]));
  importance.resize(80, 0.0f);  // padding
  for (std::size_t j = 0; j < 16; ++j)
    importance.push_back(residual_[kInput].mean_square[static_cast<std::size_t>(plan.inputs[0].ranking[j])]);
  check(plan, importance);
}

TEST_F(SearchRounderTest, RefusesWhatItCannotKnow) {
  QuantizePlan rotated = make();
  plan_hadamard(checkpoint_, rotated, sources_, 8);
  EXPECT_THROW(plan_importance(checkpoint_, rotated, sources_, stats_), Error);
  const QuantizePlan plan = make();  // without importance
  const test::Scratch out;
  SearchRounder rounder(plan, sources_, pool_);
  EXPECT_THROW(write_quantized(checkpoint_, plan, out.path(), pool_, {.rounder = &rounder}), Error);
}

}  // namespace
}  // namespace halfbyte
