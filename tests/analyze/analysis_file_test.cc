// analysis.json there and back, malformed files by name, and the findings in words.
#include "analyze/analysis_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "analyze/findings.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

// 40 linears like a model's, of which the last stands out.
Analysis sample() {
  Analysis analysis;
  analysis.command = {"halfbyte", "analyze", "m"};
  analysis.model = "m", analysis.stats = "s", analysis.format = "nvfp4 pow2", analysis.texts = {"t"};
  analysis.windows = 4, analysis.seq_len = 512, analysis.tokens = 2048;
  analysis.residual_rule = "tau=3";
  analysis.methods = {"rtn", "arc"}, analysis.formats = {"nvfp4", "mxfp8_e4m3", "bf16"};
  for (int layer = 0; layer < 30; ++layer) {
    InputAnalysis input;
    input.name = "model.layers." + std::to_string(layer) + ".mlp_product";
    input.layer = layer, input.channels = 160, input.residual = layer == 29 ? 16 : 4;
    input.capped = layer == 29;
    input.drift = {.absmax_ratio = 1.1, .mean_square_ratio = 1, .channels_above = 3, .top_overlap = 0.9};
    input.clipped = 0, input.clipped_largest = 0.9;
    input.rtn.emplace(), input.before.emplace(), input.after.emplace();
    (*input.rtn)[7] = 12345;
    input.bound = BoundCheck{.values = 100,
                             .guaranteed = 90,
                             .largest_share = 0.5,
                             .mean_square = 1e-6,
                             .mxfp8_mean_square = 4e-6};
    analysis.inputs.push_back(input);
    LinearAnalysis linear;
    linear.name = "model.layers." + std::to_string(layer) + ".mlp.down_proj";
    linear.input = input.name, linear.layer = layer, linear.out = 64, linear.in = 160,
    linear.output_square = 3;
    linear.methods["rtn"] = {0.04, 0.01};
    linear.methods["arc"] = {layer == 29 ? 0.031 : 0.01, 0.005};
    linear.formats["nvfp4"] = {{0.04, 0.01}, 4.5};
    linear.formats["mxfp8_e4m3"] = {{0.001, 0.0005}, 8.25};
    linear.formats["bf16"] = {{0, 0}, 16};
    analysis.linears.push_back(linear);
  }
  return analysis;
}

bool any(const std::vector<std::string>& findings, const std::string& part) {
  for (const std::string& finding : findings)
    if (finding.find(part) != std::string::npos) return true;
  return false;
}

TEST(AnalysisFile, ThereAndBack) {
  Analysis analysis = sample();
  analysis.findings = {"a", "b"};
  analysis.inputs[3].bound.reset();
  analysis.inputs[3].clipped.reset();
  analysis.inputs[3].before.reset();
  const Json json = to_json(analysis);
  EXPECT_TRUE(is_analysis(json));
  EXPECT_EQ(to_json(parse_analysis(json, "a.json")).dump(), json.dump());
}

TEST(AnalysisFile, NamesWhatIsMissingOrWrong) {
  const Json whole = to_json(sample());
  const auto refuses = [&](const Json& json, const std::string& part) {
    const std::string message = test::message_of([&] { parse_analysis(json, "a.json"); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("a.json"), std::string::npos) << message;
  };
  const auto each_key = [&](const Json::json_pointer& at, const std::set<std::string>& optional) {
    for (const auto& [key, value] : whole.at(at).items()) {
      Json json = whole;
      json.at(at)[key] = Json::array({Json::object()});  // of a type that no member has
      refuses(json, key);
      json.at(at).erase(key);
      if (!optional.contains(key)) refuses(json, key);
    }
  };
  each_key(Json::json_pointer(""), {});
  each_key(Json::json_pointer("/inputs/2"), {"bound", "clipping"});
  each_key(Json::json_pointer("/inputs/2/drift"), {});
  each_key(Json::json_pointer("/inputs/2/bound"), {});
  each_key(Json::json_pointer("/linears/2"), {});
  each_key(Json::json_pointer("/linears/2/methods/rtn"), {});
  each_key(Json::json_pointer("/linears/2/formats/nvfp4"), {});

  const std::vector<std::tuple<const char*, Json, const char*>> wrong{
      {"/halfbyte_analysis", 2, "expected 1"},
      {"/inputs/0/channels", 0, "channels"},
      {"/inputs/0/channels", -1, "channels"},
      {"/inputs/0/layer", -2, "layer"},
      {"/inputs/0/histograms/rtn/3", -1, "rtn"},
      {"/inputs/0/histograms/rtn/3", 1.5, "rtn"},
      {"/inputs/0/histograms/rtn", {1, 2}, "bins"},
      {"/linears/0/methods/rtn/both", -0.5, "both"},
      {"/linears/0/elements", 5, "elements"},
      {"/linears/0/out", 4611686018427387904, "elements"},
      {"/texts/0", 5, "texts"},
      {"/inputs/0/drift/absmax_ratio", "x", "absmax_ratio"}};
  for (const auto& [pointer, value, part] : wrong) {
    Json json = whole;
    json.at(Json::json_pointer(pointer)) = value;
    refuses(json, part);
  }
  refuses(Json::array(), "object");
}

TEST(Findings, NameTheLinearThatStandsOut) {
  const std::vector<std::string> findings = find_in_words(sample());
  EXPECT_TRUE(
      any(findings,
          "layer 29 down_proj: S capped at 10 %, 3.1x the median error of arc (3.10 %): raise the cap or "
          "keep it in mxfp8_e4m3"));
  EXPECT_FALSE(any(findings, "layer 28"));
  EXPECT_TRUE(any(findings, "calibration fits this text"));
  EXPECT_TRUE(any(findings, "no value would saturate"));
  EXPECT_TRUE(any(findings, "holds on all 2700 compensated values"));
  EXPECT_TRUE(any(findings, "0.50x that of MXFP8"));
  EXPECT_TRUE(any(findings, "arc 1.07 % (-73 %)"));
  EXPECT_TRUE(any(findings, "25 % is the weights' part: methods that correct activations"));
  EXPECT_TRUE(any(findings, "1 of 30 inputs are outside the advised"));
}

TEST(Findings, FollowTheTroubleshootingFlow) {
  Analysis analysis = sample();
  analysis.inputs[4].drift.absmax_ratio = 3;
  analysis.inputs[4].clipped = 7;
  analysis.inputs[4].clipped_largest = 1.5;
  analysis.inputs[5].bound->violations = 2;
  for (LinearAnalysis& linear : analysis.linears) linear.methods["rtn"].weights = 0.03;
  const std::vector<std::string> findings = find_in_words(analysis);
  EXPECT_TRUE(any(
      findings,
      "1 of 30 inputs are more than 1.25x as large as calibrated, most of all layer 4 mlp_product (3.00x)"));
  EXPECT_TRUE(any(findings, "7 values of 1 inputs would saturate"));
  EXPECT_TRUE(any(findings, "broken by 2 of 2700"));
  EXPECT_TRUE(any(findings, "75 % is the weights' part: work on the weights first"));
  EXPECT_TRUE(find_in_words({}).empty());
}

}  // namespace
}  // namespace halfbyte
