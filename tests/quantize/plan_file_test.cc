// Plans as files: they come back as they were, hand-made changes take effect, and everything that cannot be is refused.
#include "quantize/plan_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/file.h"
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
constexpr QuantSpec kNvfp4{.format = Format::nvfp4}, kInt4{.format = Format::int4, .block_size = 32};

class PlanFileTest : public testing::Test {
 protected:
  PlanFileTest() : checkpoint_(kModel), pool_(2) {
    for (int i = 0; i < 3; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      for (const char* part : {"q_proj", "k_proj", "v_proj"})
        sources_.push_back({layer + "self_attn." + part, layer + "attention"});
      sources_.push_back({layer + "self_attn.o_proj", layer + "attention_output"});
      for (const char* part : {"gate_proj", "up_proj"})
        sources_.push_back({layer + "mlp." + part, layer + "mlp"});
      sources_.push_back({layer + "mlp.down_proj", layer + "mlp_product"});
    }
    for (const LinearSource& source : sources_) {
      const std::int64_t channels = checkpoint_.shape(source.name + ".weight")[1];
      InputStats& input = stats_.inputs[source.input];
      input.absmax.clear();
      for (std::int64_t k = 0; k < channels; ++k)
        input.absmax.push_back(0.5f + static_cast<float>((k * 37) % channels));
      input.global_absmax = static_cast<float>(channels) - 0.5f;
    }
    for (int i = 0; i < 3; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      Producer norm{layer + "input_layernorm.weight", {}}, up{layer + "mlp.up_proj.weight", {}};
      for (int k = 0; k < 72; ++k) norm.rows.push_back(k);
      for (int k = 0; k < 104; ++k) up.rows.push_back(k);
      producers_.emplace(layer + "attention", norm);
      producers_.emplace(layer + "mlp_product", up);
    }
  }

  QuantizePlan rtn(const QuantSpec& spec, ActivationScope scope = ActivationScope::tensor,
                   std::vector<FormatRule> rules = {}) {
    std::vector<std::string> names;
    for (const LinearSource& source : sources_) names.push_back(source.name);
    return make_plan(checkpoint_, names,
                     {.weights = spec,
                      .activations = ActivationSpec{.spec = spec, .scope = scope},
                      .keep = {},
                      .rules = std::move(rules)});
  }

  PlanFile parse(const std::string& text) {
    return parse_plan(parse_json(text, "plan.json"), "plan.json", checkpoint_, sources_, producers_);
  }

  std::string bytes(const QuantizePlan& plan) {
    const test::Scratch dir;
    write_quantized(checkpoint_, plan, dir.path(), pool_, {}, producers_);
    return read_text_file(dir.path() / "model.safetensors") + read_text_file(dir.path() / "config.json");
  }

  std::vector<QuantizePlan> plans() {
    std::vector<QuantizePlan> plans;
    plans.push_back(rtn(kNvfp4));
    share_weight_scales(checkpoint_, plans.back(), sources_);
    for (const ColumnOrder order : {ColumnOrder::falling, ColumnOrder::natural}) {
      plans.push_back(rtn(kNvfp4, ActivationScope::fixed));
      plan_arc(checkpoint_, plans.back(), sources_, stats_,
               {.order = order, .rule = {ResidualRule::Kind::fixed, 16}, .cap_percent = 50});
      plan_static_scales(checkpoint_, plans.back(), sources_, stats_);
    }
    plans.push_back(rtn(kNvfp4, ActivationScope::fixed));
    plan_smoothquant(checkpoint_, plans.back(), sources_, stats_, {.alpha = 0.5}, pool_, producers_);
    plan_static_scales(checkpoint_, plans.back(), sources_, stats_);
    share_weight_scales(checkpoint_, plans.back(), sources_);
    plans.push_back(rtn(kNvfp4));
    plan_hadamard(checkpoint_, plans.back(), sources_, 8);
    plans.push_back(rtn(kInt4));
    plan_atom(checkpoint_, plans.back(), sources_, stats_, {.outliers = 24});
    plans.push_back(rtn(kNvfp4));
    plans.back().rounding = Rounding::search;
    plans.back().importance["model.layers.0.mlp"] = {.channels = {1.0f, 0.1f}, .residual = {3e-7f}};
    plans.back().importance["model.layers.1.mlp"] = {.channels = {0.0f}, .residual = {}};
    plans.push_back(rtn(kNvfp4));
    plans.back().rounding = Rounding::feedback;
    plans.back().feedback = {
        .samples = 7, .seq_len = 64, .seed = 5, .damping = 0.02, .mean_damping = true, .match_output = 0.3};
    plans.push_back(
        rtn(kNvfp4, ActivationScope::tensor,
            {{"down_proj", {.format = Format::mxfp8_e4m3}, ActivationSpec{{.format = Format::mxfp8_e4m3}}},
             {"layers.1", {.format = Format::bf16}, {}},
             {"layers.1.mlp.gate_proj", {.format = Format::nf4}, {}}}));
    return plans;
  }

  Checkpoint checkpoint_;
  ThreadPool pool_;
  std::vector<LinearSource> sources_;
  CalibrationStats stats_;
  Producers producers_;
};

TEST_F(PlanFileTest, ComesBackAsItWasAndDoesTheSame) {
  for (const QuantizePlan& plan : plans()) {
    const std::string text = plan_text(plan, {"model", "stats", {"text"}});
    const PlanFile back = parse(text);
    EXPECT_EQ(back.origin.model, "model");
    EXPECT_EQ(back.origin.stats, "stats");
    EXPECT_TRUE(plan_text(back.plan, back.origin) == text);
    EXPECT_EQ(back.plan.rounding, plan.rounding);
    EXPECT_EQ(back.plan.feedback.seed, plan.feedback.seed);
    EXPECT_EQ(back.plan.feedback.mean_damping, plan.feedback.mean_damping);
    EXPECT_EQ(back.plan.feedback.match_output, plan.feedback.match_output);
    EXPECT_TRUE(bytes(back.plan) == bytes(plan)) << plan.method;
  }
}

TEST_F(PlanFileTest, HandMadeChangesTakeEffect) {
  QuantizePlan plan = rtn(kNvfp4);
  plan_arc(checkpoint_, plan, sources_, stats_, {.rule = {ResidualRule::Kind::fixed, 16}, .cap_percent = 50});
  Json json = parse_json(plan_text(plan, {"m", "", {}}), "p");
  json["inputs"]["model.layers.0.mlp"]["residual"] = 32;
  json["inputs"]["model.layers.0.mlp"]["order"] = "natural";
  json["tensors"]["model.layers.2.self_attn.v_proj.weight"] = {{"kept", "by hand"}};
  const QuantizePlan changed = parse(dump_json(json)).plan;
  const auto input = std::ranges::find(changed.inputs, "model.layers.0.mlp", &PlannedInput::name);
  EXPECT_EQ(input->transform.info.width, 80 + 32);  // 72 channels padded to whole blocks
  EXPECT_EQ(input->transform.columns[5], 5);
  EXPECT_EQ(input->transform.columns[80], input->ranking[0]);
  const auto kept =
      std::ranges::find(changed.tensors, "model.layers.2.self_attn.v_proj.weight", &PlannedTensor::name);
  EXPECT_FALSE(kept->spec);
  EXPECT_FALSE(bytes(changed).empty());
}

TEST_F(PlanFileTest, RefusesWhatCannotBe) {
  QuantizePlan plan = rtn(kNvfp4, ActivationScope::fixed);
  plan_arc(checkpoint_, plan, sources_, stats_, {.rule = {ResidualRule::Kind::fixed, 16}, .cap_percent = 50});
  plan_static_scales(checkpoint_, plan, sources_, stats_);
  share_weight_scales(checkpoint_, plan, sources_);
  const Json good = parse_json(plan_text(plan, {"m", "", {}}), "p");
  const std::string input = "model.layers.0.mlp", up = "model.layers.0.mlp.up_proj.weight";
  const auto refused = [&](const char* what, auto change) {
    Json json = good;
    change(json);
    try {
      const PlanFile file = parse(dump_json(json));
      ADD_FAILURE() << what << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("plan.json"), std::string::npos)
          << what << ": " << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  };
  refused("another version", [](Json& j) { j["halfbyte_plan"] = 2; });
  refused("no model", [](Json& j) { j.erase("model"); });
  refused("a missing tensor", [&](Json& j) { j["tensors"].erase(up); });
  refused("a tensor too many", [](Json& j) { j["tensors"]["x.weight"] = {{"kept", "x"}}; });
  refused("an embedding quantized", [](Json& j) {
    j["tensors"]["model.embed_tokens.weight"] = {{"weights", {{"format", "nf4"}}}};
  });
  refused("an unknown format", [&](Json& j) { j["tensors"][up]["weights"]["format"] = "fp3"; });
  refused("an unknown input", [&](Json& j) { j["tensors"][up]["input"] = "nowhere"; });
  refused("another's input", [&](Json& j) { j["tensors"][up]["input"] = "model.layers.1.mlp"; });
  refused("residuals of float activations", [&](Json& j) { j["tensors"][up]["activations"] = nullptr; });
  refused("a mixed scale group", [&](Json& j) { j["tensors"][up]["weights"] = {{"format", "mxfp4"}}; });
  refused("an input that nobody reads",
          [&](Json& j) { j["inputs"]["model.layers.9.mlp"] = j["inputs"][input]; });
  refused("wrong channels", [&](Json& j) { j["inputs"][input]["channels"] = 64; });
  refused("S beyond K", [&](Json& j) { j["inputs"][input]["residual"] = 96; });
  refused("S of no whole blocks", [&](Json& j) { j["inputs"][input]["residual"] = 8; });
  refused("a negative S", [&](Json& j) { j["inputs"][input]["residual"] = -16; });
  refused("an unknown order", [&](Json& j) { j["inputs"][input]["order"] = "shuffled"; });
  refused("no ranking", [&](Json& j) { j["inputs"][input].erase("ranking"); });
  refused("a channel twice",
          [&](Json& j) { j["inputs"][input]["ranking"][0] = j["inputs"][input]["ranking"][1]; });
  refused("a channel of text", [&](Json& j) { j["inputs"][input]["ranking"][0] = "3"; });
  refused("a short ranking", [&](Json& j) { j["inputs"][input]["ranking"].erase(0); });
  refused("no static scale", [&](Json& j) { j["inputs"][input].erase("global_scale"); });
  refused("a negative scale", [&](Json& j) { j["inputs"][input]["global_scale"] = -1.0; });
  refused("a misspelled member", [&](Json& j) { j["inputs"][input]["residul"] = 32; });
  refused("a member of another place", [&](Json& j) { j["tensors"][up]["keep"] = true; });
  refused("an unknown member", [](Json& j) { j["activation"] = nullptr; });
  refused("activations in nf4", [](Json& j) { j["activations"] = {{"format", "nf4"}, {"scope", "tensor"}}; });
  refused("activations in bf16", [](Json& j) {
    j["activations"] = {{"format", "bf16"}, {"scope", "tensor"}};
  });
  refused("residual columns of nf4", [&](Json& j) {
    j["tensors"][up] = {{"weights", {{"format", "nf4"}}}, {"input", input}};
  });
  refused("a fold without a scale", [&](Json& j) { j["inputs"][input]["folded_into"] = up; });
}

TEST_F(PlanFileTest, RefusesFoldsThatWouldMakeAnotherModel) {
  QuantizePlan plan = rtn(kNvfp4);
  plan_smoothquant(checkpoint_, plan, sources_, stats_, {.alpha = 0.5}, pool_, producers_);
  const Json good = parse_json(plan_text(plan, {"m", "", {}}), "p");
  const std::string q = "model.layers.0.self_attn.q_proj.weight", attention = "model.layers.0.attention";
  ASSERT_EQ(good["inputs"][attention]["folded_into"], "model.layers.0.input_layernorm.weight");
  EXPECT_NO_THROW(parse(dump_json(good)));
  const auto refused = [&](const char* what, auto change) {
    Json json = good;
    change(json);
    EXPECT_THROW(parse(dump_json(json)), Error) << what;
  };
  refused("a reader left alone", [&](Json& j) { j["tensors"][q] = {{"kept", "by hand"}}; });
  refused("a reader in bf16", [&](Json& j) { j["tensors"][q]["weights"] = {{"format", "bf16"}}; });
  refused("a reader of the plain input", [&](Json& j) { j["tensors"][q].erase("input"); });
  refused("another producer", [&](Json& j) { j["inputs"][attention]["folded_into"] = "model.norm.weight"; });
  for (auto& [name, producer] : producers_)
    if (name == attention) producer.rows[1] = producer.rows[0];  // as query heads that share a row
  refused("two scales of one row", [](Json&) {});
}

}  // namespace
}  // namespace halfbyte
