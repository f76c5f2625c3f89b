// Methods end to end on a tiny model: planned from statistics, written, loaded, and run against the model itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "formats/source_dtype.h"
#include "io/file.h"
#include "model/model.h"
#include "quantize/arc.h"
#include "quantize/atom.h"
#include "quantize/hadamard.h"
#include "quantize/smoothquant.h"
#include "quantize/static_scales.h"
#include "quantize/write.h"
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

  QuantizePlan rtn(const QuantSpec& weights, std::optional<QuantSpec> activations,
                   ActivationScope scope = ActivationScope::tensor) {
    PlanOptions options{.weights = weights, .activations = {}, .keep = {"layers.1.self_attn.v_proj"}};
    if (activations) options.activations = ActivationSpec{.spec = *activations, .scope = scope};
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

  std::vector<float> run(const QuantizePlan& plan, const std::filesystem::path& dir,
                         const Producers& producers = {}) {
    write_quantized(checkpoint_, plan, dir, pool_, {}, producers);
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
    plan_smoothquant(checkpoint_, plan, sources_, stats_, {.alpha = alpha}, pool_);
    EXPECT_LT(error(run(plan)), 0.1) << alpha;
  }
}

TEST_F(MethodsTest, NoResidualInNaturalOrderIsRoundingToNearest) {
  // 72 and 104 channels are no multiples of the block: the padding must change nothing.
  QuantizePlan plan = rtn(kNvfp4, kNvfp4);
  plan_arc(checkpoint_, plan, sources_, stats_,
           {.order = ColumnOrder::natural, .rule = {ResidualRule::Kind::fixed, 0}});
  const std::vector<float> arc = run(plan), plain = run(rtn(kNvfp4, kNvfp4));
  for (std::size_t i = 0; i < arc.size(); ++i)
    ASSERT_NEAR(arc[i], plain[i], 1e-4f * std::abs(plain[i]) + 1e-5f) << i;
}

TEST_F(MethodsTest, ResidualsTakeTheErrorOfActivationsAway) {
  for (const QuantSpec& spec :
       {kNvfp4, QuantSpec{.format = Format::mxfp4}, QuantSpec{.format = Format::int4, .block_size = 32}})
    for (const auto order : {ColumnOrder::falling, ColumnOrder::natural})
      for (const auto scope : {ActivationScope::tensor, ActivationScope::token})
        for (const bool shared : {false, true}) {
          const auto with = [&](double percent) {
            QuantizePlan plan = rtn(spec, spec, scope);
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

TEST_F(MethodsTest, FoldedScalesComputeTheSame) {
  Producers producers;
  for (const InputProducer& producer : list_producers(load_model_config(kModel)))
    producers.emplace(producer.input, Producer{producer.tensor, producer.rows});
  for (const double alpha : {0.3, 0.7}) {
    QuantizePlan plan = rtn(kInt8, kInt8), at_run_time = rtn(kInt8, kInt8);
    plan_smoothquant(checkpoint_, plan, sources_, stats_, {.alpha = alpha}, pool_, producers);
    plan_smoothquant(checkpoint_, at_run_time, sources_, stats_, {.alpha = alpha}, pool_);
    const test::Scratch dir;
    const std::vector<float> folded = run(plan, dir.path(), producers);
    EXPECT_LT(error(folded), 0.1) << alpha;
    EXPECT_NE(folded, run(at_run_time));  // up's and v's rows were rounded after the division
    // Nothing is left to do, but where v_proj of layer 1 stays as it is and so takes nothing in.
    const Checkpoint after(dir.path());
    for (const auto& [name, input] : after.quantization().inputs)
      EXPECT_EQ(input.scaled, name == "model.layers.1.attention" || name == "model.layers.1.attention_output")
          << name;
    // The gain and the scale of the weights are each other's inverse but for the last bits of a float.
    for (const PlannedInput& input : plan.inputs) {
      if (!input.folded_into.ends_with("norm.weight")) continue;
      const TensorView &before = *checkpoint_.plain(input.folded_into),
                       &now = *after.plain(input.folded_into);
      for (std::int64_t k = 0; k < before.elements(); ++k) {
        const float gain = load_element(before.dtype, before.data.data(), k);
        const float product =
            load_element(now.dtype, now.data.data(), k) * input.transform.scale[static_cast<std::size_t>(k)];
        ASSERT_NEAR(product, gain, 2e-7f * std::abs(gain));
      }
    }
  }
}

TEST_F(MethodsTest, GroupedHeadsShareTheirFoldedScale) {
  const ModelConfig config = load_model_config(kModel);
  Producers producers;
  for (const InputProducer& producer : list_producers(config))
    producers.emplace(producer.input, Producer{producer.tensor, producer.rows});
  QuantizePlan plan = rtn(kInt8, kInt8);
  plan_smoothquant(checkpoint_, plan, sources_, stats_, {.alpha = 0.5}, pool_, producers);
  const auto input = std::ranges::find(plan.inputs, "model.layers.0.attention_output", &PlannedInput::name);
  ASSERT_EQ(input->folded_into, "model.layers.0.self_attn.v_proj.weight");
  const std::vector<float>& scale = input->transform.scale;
  const std::int64_t group = config.heads / config.kv_heads * config.head_dim;
  ASSERT_GT(group, config.head_dim);
  for (std::int64_t k = 0; k < config.heads * config.head_dim; ++k)
    EXPECT_EQ(scale[static_cast<std::size_t>(k)],
              scale[static_cast<std::size_t>(k / group * group + k % config.head_dim)]);
}

TEST_F(MethodsTest, OutliersInEightBitsBringALot) {
  const QuantSpec int4{.format = Format::int4, .block_size = 32};
  const double none = error(run(rtn(int4, int4)));
  double last = none;
  for (const std::int64_t outliers : {8, 40, 1000}) {
    QuantizePlan plan = rtn(int4, int4);
    plan_atom(checkpoint_, plan, sources_, stats_, {.outliers = outliers});
    const double found = error(run(plan));
    EXPECT_LT(found, last) << outliers;
    last = found;
  }
  EXPECT_LT(last, 0.3 * none);  // all but one channel in 8 bits
  QuantizePlan natural = rtn(int4, int4), nvfp4 = rtn(kNvfp4, kNvfp4);
  plan_atom(checkpoint_, natural, sources_, stats_, {.outliers = 40, .order = ColumnOrder::natural});
  EXPECT_LT(error(run(natural)), none);
  plan_atom(checkpoint_, nvfp4, sources_, stats_, {.outliers = 40});
  EXPECT_LT(error(run(nvfp4)), error(run(rtn(kNvfp4, kNvfp4))));
}

TEST_F(MethodsTest, StaticScalesAreThoseOfTheSameTokensAndCountWhatTheyClip) {
  // Statistics of the very tokens that are run: static scales are the dynamic ones, and nothing saturates.
  const QuantizePlan dynamic = rtn(kNvfp4, kNvfp4);
  QuantizePlan fixed = rtn(kNvfp4, kNvfp4, ActivationScope::fixed);
  for (auto& [name, input] : stats_.inputs) input.global_absmax = *std::ranges::max_element(input.absmax);
  plan_static_scales(checkpoint_, fixed, sources_, stats_);
  const test::Scratch dir;
  write_quantized(checkpoint_, fixed, dir.path(), pool_);
  Model model = Model::load(dir.path(), pool_);
  const std::vector<float> found = logits(model), expected = run(dynamic);
  // Later layers see inputs changed by rounding, whose maximum differs a little from the statistics'.
  EXPECT_LT(std::abs(error(found) - error(expected)), 0.1 * error(expected));
  EXPECT_GT(model.clipping().values, 0);
  EXPECT_LT(model.clipping().clipped, model.clipping().values / 1000);

  for (auto& [name, input] : stats_.inputs) {
    for (float& absmax : input.absmax) absmax /= 8;
    input.global_absmax /= 8;
  }
  QuantizePlan narrow = rtn(kNvfp4, kNvfp4, ActivationScope::fixed);
  plan_arc(checkpoint_, narrow, sources_, stats_,
           {.rule = {ResidualRule::Kind::percent, 30}, .cap_percent = 50});
  plan_static_scales(checkpoint_, narrow, sources_, stats_);
  const test::Scratch second;
  write_quantized(checkpoint_, narrow, second.path(), pool_);
  Model clipped = Model::load(second.path(), pool_);
  logits(clipped);
  EXPECT_GT(clipped.clipping().clipped, 0);
  EXPECT_GT(error(logits(clipped)), error(found));

  QuantizePlan rotated = rtn(kNvfp4, kNvfp4, ActivationScope::fixed);
  plan_hadamard(checkpoint_, rotated, sources_, 8);
  EXPECT_THROW(plan_static_scales(checkpoint_, rotated, sources_, stats_), Error);
}

TEST_F(MethodsTest, FusedWeightsShareTheLargestScale) {
  QuantizePlan plan = rtn(kNvfp4, {});
  share_weight_scales(checkpoint_, plan, sources_);
  const test::Scratch shared, own;
  write_quantized(checkpoint_, plan, shared.path(), pool_);
  write_quantized(checkpoint_, rtn(kNvfp4, {}), own.path(), pool_);
  const Checkpoint a(shared.path()), b(own.path());
  const auto scale = [](const Checkpoint& c, const std::string& name) {
    return c.quantized("model.layers.0." + name + ".weight").global_scale;
  };
  const float q = scale(b, "self_attn.q_proj"), k = scale(b, "self_attn.k_proj"),
              v = scale(b, "self_attn.v_proj");
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
    EXPECT_EQ(scale(a, name), std::max({q, k, v}));
  EXPECT_EQ(scale(a, "mlp.gate_proj"), scale(a, "mlp.up_proj"));
  EXPECT_EQ(scale(a, "mlp.down_proj"), scale(b, "mlp.down_proj"));
}

TEST_F(MethodsTest, LayersMayHaveFormatsOfTheirOwn) {
  PlanOptions options{.weights = kNvfp4,
                      .activations = ActivationSpec{.spec = kNvfp4},
                      .keep = {},
                      .rules = {{"mlp", kMxfp8, ActivationSpec{.spec = kMxfp8}},
                                {"layers.2", {.format = Format::bf16}, {}},
                                {"layers.0.self_attn.q_proj", {.format = Format::nf4}, {}}}};
  QuantizePlan plan = make_plan(checkpoint_, names_, options);
  plan_arc(checkpoint_, plan, sources_, stats_,
           {.rule = {ResidualRule::Kind::percent, 30}, .cap_percent = 50});
  const test::Scratch dir;
  EXPECT_LT(error(run(plan, dir.path())), error(run(rtn(kNvfp4, kNvfp4))));
  const Checkpoint after(dir.path());
  const auto& tensors = after.quantization().tensors;
  EXPECT_FALSE(tensors.contains("model.layers.2.mlp.up_proj.weight"));
  const QuantizedInfo &down = tensors.find("model.layers.0.mlp.down_proj.weight")->second,
                      &q = tensors.find("model.layers.0.self_attn.q_proj.weight")->second,
                      &k = tensors.find("model.layers.0.self_attn.k_proj.weight")->second;
  EXPECT_EQ(down.spec.format, Format::mxfp8_e4m3);
  EXPECT_EQ(down.activations->spec.format, Format::mxfp8_e4m3);
  EXPECT_TRUE(down.input.empty());  // residuals are for those whose activations are nvfp4
  EXPECT_EQ(q.spec.format, Format::nf4);
  EXPECT_TRUE(q.own_activations && !q.activations);
  EXPECT_TRUE(q.input.empty());
  EXPECT_EQ(k.input, "model.layers.0.attention");
  options.rules = {{"nothing_like_this", kMxfp8, {}}};
  EXPECT_THROW(make_plan(checkpoint_, names_, options), Error);
}

TEST_F(MethodsTest, SameBytesForAnyNumberOfThreads) {
  const auto bytes = [&](int threads) {
    ThreadPool pool(threads);
    const test::Scratch dir;
    QuantizePlan plan = rtn(kNvfp4, kNvfp4);
    plan_arc(checkpoint_, plan, sources_, stats_, {});
    write_quantized(checkpoint_, plan, dir.path(), pool);
    return read_text_file(dir.path() / "model.safetensors") + read_text_file(dir.path() / "config.json");
  };
  EXPECT_EQ(bytes(1), bytes(3));
}

TEST_F(MethodsTest, RefusesACheckpointWhoseInputsDoNotFit) {
  const test::Scratch dir;
  QuantizePlan plan = rtn(kMxfp8, kMxfp8);
  plan_smoothquant(checkpoint_, plan, sources_, stats_, {.alpha = 0.5}, pool_);
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
  refused([](Json& q) { q["version"] = 4; });
  std::ofstream(dir.path() / "config.json") << text;
  EXPECT_NO_THROW(Model::load(dir.path(), pool_));
}

TEST_F(MethodsTest, RefusesOptionsThatMakeNoSense) {
  QuantizePlan plan = rtn(kNvfp4, kNvfp4), weights_only = rtn(kNvfp4, {});
  EXPECT_THROW(plan_smoothquant(checkpoint_, plan, sources_, stats_, {.alpha = 1.5}, pool_), Error);
  EXPECT_THROW(plan_smoothquant(checkpoint_, plan, sources_, stats_, {.alpha = NAN}, pool_), Error);
  EXPECT_THROW(plan_smoothquant(checkpoint_, plan, sources_, {}, {.alpha = 0.5}, pool_), Error);
  EXPECT_THROW(plan_smoothquant(checkpoint_, weights_only, sources_, stats_, {.alpha = 0.5}, pool_), Error);
  EXPECT_THROW(plan_hadamard(checkpoint_, plan, sources_, 12), Error);
  EXPECT_THROW(plan_hadamard(checkpoint_, plan, sources_, -1), Error);
}

}  // namespace
}  // namespace halfbyte
