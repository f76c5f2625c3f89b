// Methods end to end on a tiny model: planned from statistics, written, loaded, and run against the model itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/file.h"
#include "model/model.h"
#include "quantize/arc.h"
#include "quantize/hadamard.h"
#include "quantize/rtn.h"
#include "quantize/smoothquant.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const std::filesystem::path kModel = std::filesystem::path(HALFBYTE_GOLDEN) / "models" / "smollm2_like";

std::vector<std::int32_t> some_ids() {
  std::vector<std::int32_t> ids(48);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(1 + (i * i * 7 + i * 3) % 97);
  return ids;
}

class MethodsTest : public testing::Test {
 protected:
  MethodsTest() : checkpoint_(kModel), pool_(2) {
    Model model = Model::load(kModel, pool_);
    for (const LinearInfo& linear : list_linears(model.config())) {
      names_.push_back(linear.name);
      sources_.push_back({linear.name, input_name(linear.input, linear.layer)});
    }
    model.observe_inputs(
        [&](LinearInput input, std::int64_t layer, const float* x, std::int64_t rows, std::int64_t columns) {
          std::vector<float>& absmax = stats_.inputs[input_name(input, layer)].absmax;
          absmax.resize(static_cast<std::size_t>(columns));
          for (std::int64_t i = 0; i < rows * columns; ++i) {
            float& largest = absmax[static_cast<std::size_t>(i % columns)];
            largest = std::max(largest, std::abs(x[i]));
          }
        });
    expected_ = logits(model);
  }

  QuantizePlan rtn(const QuantSpec& weights, std::optional<QuantSpec> activations) {
    PlanOptions options{.weights = weights, .activations = {}, .keep = {"layers.1.self_attn.v_proj"}};
    if (activations) options.activations = ActivationSpec{.spec = *activations};
    return make_plan(checkpoint_, names_, options);
  }

  std::vector<float> logits(Model& model) {
    const std::vector<std::int32_t> ids = some_ids();
    const auto rows = static_cast<std::int64_t>(ids.size());
    KvCache cache(model.config(), rows);
    Array<float> hidden(rows * model.config().hidden);
    std::vector<float> out(static_cast<std::size_t>(rows * model.config().vocab));
    model.forward(ids, cache, hidden.data(), pool_);
    model.logits(hidden.data(), rows, out.data(), pool_);
    return out;
  }

  std::vector<float> run(const QuantizePlan& plan, const std::filesystem::path& dir) {
    quantize_rtn(checkpoint_, plan, dir, pool_);
    Model model = Model::load(dir, pool_);
    EXPECT_TRUE(model.warnings().empty());
    return logits(model);
  }
  std::vector<float> run(const QuantizePlan& plan) {
    const test::Scratch dir;
    return run(plan, dir.path());
  }

  // Root of the mean squared difference from the model's own logits, over their root mean square.
  double error(const std::vector<float>& found) const {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      difference += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected_[i]), 2);
      size += std::pow(static_cast<double>(expected_[i]), 2);
    }
    return std::sqrt(difference / size);
  }

  Checkpoint checkpoint_;
  ThreadPool pool_;
  std::vector<std::string> names_;
  std::vector<LinearSource> sources_;
  CalibrationStats stats_;
  std::vector<float> expected_;
};

constexpr QuantSpec kInt8{.format = Format::int8}, kNvfp4{.format = Format::nvfp4},
    kMxfp8{.format = Format::mxfp8_e4m3};

TEST_F(MethodsTest, ChangesOfBasisCancelUpToTheRounding) {
  const double plain = error(run(rtn(kInt8, kInt8)));
  EXPECT_LT(plain, 0.1);
  for (const std::int64_t block : {0, 4, 16}) {
    QuantizePlan plan = rtn(kInt8, kInt8);
    plan_hadamard(checkpoint_, plan, sources_, block);
    EXPECT_LT(error(run(plan)), 0.1) << block;
    QuantizePlan weights_only = rtn(kInt8, {});
    plan_hadamard(checkpoint_, weights_only, sources_, block);
    EXPECT_LT(error(run(weights_only)), 0.1) << block;
  }
  for (const double alpha : {0.0, 0.5, 1.0}) {
    QuantizePlan plan = rtn(kInt8, kInt8);
    plan_smoothquant(checkpoint_, plan, sources_, stats_, alpha, pool_);
    EXPECT_LT(error(run(plan)), 0.1) << alpha;
  }
}

TEST_F(MethodsTest, NoResidualInNaturalOrderIsRoundingToNearest) {
  // 72 and 104 channels are no multiples of the block: the padding must change nothing.
  QuantizePlan plan = rtn(kNvfp4, kNvfp4);
  plan_arc(checkpoint_, plan, sources_, stats_,
           {.order = ArcOptions::Order::natural, .rule = {ResidualRule::Kind::fixed, 0}});
  const std::vector<float> arc = run(plan), plain = run(rtn(kNvfp4, kNvfp4));
  for (std::size_t i = 0; i < arc.size(); ++i)
    ASSERT_NEAR(arc[i], plain[i], 1e-4f * std::abs(plain[i]) + 1e-5f) << i;
}

TEST_F(MethodsTest, ResidualsTakeTheErrorOfActivationsAway) {
  for (const QuantSpec& spec :
       {kNvfp4, QuantSpec{.format = Format::mxfp4}, QuantSpec{.format = Format::int4, .block_size = 32}})
    for (const auto order : {ArcOptions::Order::absmax, ArcOptions::Order::natural})
      for (const auto scope : {ActivationScope::tensor, ActivationScope::token})
        for (const bool shared : {false, true}) {
          const auto with = [&](double percent) {
            QuantizePlan plan = rtn(spec, spec);
            plan.activations->scope = scope;
            plan_arc(checkpoint_, plan, sources_, stats_,
                     {.order = order,
                      .rule = {ResidualRule::Kind::percent, percent},
                      .cap_percent = 100,
                      .shared_scale = shared});
            return error(run(plan));
          };
          // Weights in 4 bits stay; with a residual for nearly every channel the rest is their error alone.
          QuantizePlan weights_only = rtn(spec, {});
          const double none = with(0), all = with(100), floor = error(run(weights_only));
          EXPECT_LT(all, 0.95 * none) << to_string(spec);
          EXPECT_LT(all, 1.6 * floor) << to_string(spec);
        }
}

TEST_F(MethodsTest, SameBytesForAnyNumberOfThreads) {
  const auto bytes = [&](int threads) {
    ThreadPool pool(threads);
    const test::Scratch dir;
    QuantizePlan plan = rtn(kNvfp4, kNvfp4);
    plan_arc(checkpoint_, plan, sources_, stats_, {});
    quantize_rtn(checkpoint_, plan, dir.path(), pool);
    return read_text_file(dir.path() / "model.safetensors") + read_text_file(dir.path() / "config.json");
  };
  EXPECT_EQ(bytes(1), bytes(3));
}

TEST_F(MethodsTest, RefusesACheckpointWhoseInputsDoNotFit) {
  const test::Scratch dir;
  QuantizePlan plan = rtn(kMxfp8, kMxfp8);
  plan_smoothquant(checkpoint_, plan, sources_, stats_, 0.5, pool_);
  run(plan, dir.path());
  const std::string text = read_text_file(dir.path() / "config.json");
  const Json good = Json::parse(text);
  const auto refused = [&](auto change) {
    Json json = good;
    change(json["quantization_config"]);
    std::ofstream(dir.path() / "config.json") << json;
    EXPECT_THROW(Model::load(dir.path(), pool_), Error);
  };
  refused([](Json& q) { q.erase("inputs"); });
  refused([](Json& q) { q["inputs"].erase("model.layers.0.mlp"); });
  refused([](Json& q) { q["inputs"]["model.layers.0.mlp"]["channels"] = 71; });
  refused([](Json& q) { q["inputs"]["model.layers.0.mlp"]["hadamard"] = 5; });
  refused([](Json& q) { q["inputs"]["model.layers.0.none"] = q["inputs"]["model.layers.0.mlp"]; });
  refused([](Json& q) {
    q["tensors"]["model.layers.0.mlp.up_proj.weight"]["input"] = "model.layers.0.mlp_product";
  });
  refused([](Json& q) { q["tensors"]["model.layers.0.mlp.up_proj.weight"]["input"] = 3; });
  refused([](Json& q) { q["version"] = 3; });
  std::ofstream(dir.path() / "config.json") << text;
  EXPECT_NO_THROW(Model::load(dir.path(), pool_));
}

TEST_F(MethodsTest, RefusesOptionsThatMakeNoSense) {
  QuantizePlan plan = rtn(kNvfp4, kNvfp4), weights_only = rtn(kNvfp4, {});
  EXPECT_THROW(plan_smoothquant(checkpoint_, plan, sources_, stats_, 1.5, pool_), Error);
  EXPECT_THROW(plan_smoothquant(checkpoint_, plan, sources_, stats_, NAN, pool_), Error);
  EXPECT_THROW(plan_smoothquant(checkpoint_, plan, sources_, {}, 0.5, pool_), Error);
  EXPECT_THROW(plan_smoothquant(checkpoint_, weights_only, sources_, stats_, 0.5, pool_), Error);
  EXPECT_THROW(plan_hadamard(checkpoint_, plan, sources_, 12), Error);
  EXPECT_THROW(plan_hadamard(checkpoint_, plan, sources_, -1), Error);
}

}  // namespace
}  // namespace halfbyte
