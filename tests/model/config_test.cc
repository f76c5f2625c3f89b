// config.json: every field checked, unknown families and activations refused by name.
#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "model/linears.h"

namespace halfbyte {
namespace {

Json plain() {
  return {{"model_type", "llama"},  {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"vocab_size", 100},      {"rms_norm_eps", 1e-5}};
}

std::string refusal(const Json& config) {
  try {
    parse_model_config(config, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ModelConfigTest, RefusesByNameAndValue) {
  struct Case {
    const char* key;
    Json value;
    const char* part;
  };
  for (const Case& c :
       std::vector<Case>{{"model_type", "mixtral", "mixtral"},
                         {"model_type", nullptr, "model_type"},
                         {"hidden_act", "gelu", "gelu"},
                         {"hidden_size", 0, "hidden_size"},
                         {"hidden_size", "64", "hidden_size"},
                         {"hidden_size", -64, "hidden_size"},
                         {"hidden_size", 66, "num_attention_heads"},
                         {"num_key_value_heads", 3, "num_key_value_heads"},
                         {"head_dim", 15, "head_dim"},
                         {"num_hidden_layers", 100000000, "num_hidden_layers"},
                         {"rms_norm_eps", 0, "rms_norm_eps"},
                         {"vocab_size", 1e300, "vocab_size"},
                         {"rope_theta", -1, "rope_theta"},
                         {"rope_scaling", {{"type", "yarn"}, {"factor", 4}}, "yarn"},
                         {"rope_scaling", {{"rope_type", "linear"}}, "factor"},
                         {"rope_scaling", {{"rope_type", "linear"}, {"factor", 0.5}}, "factor"},
                         {"rope_scaling",
                          {{"rope_type", "llama3"},
                           {"factor", 8},
                           {"low_freq_factor", 4},
                           {"high_freq_factor", 1},
                           {"original_max_position_embeddings", 64}},
                          "ramp"},
                         {"partial_rotary_factor", 0.5, "partial_rotary_factor"},
                         {"eos_token_id", 100, "eos_token_id"},
                         {"eos_token_id", "a", "eos_token_id"},
                         {"sliding_window", -3, "sliding_window"}}) {
    Json config = plain();
    config[c.key] = c.value;
    const std::string message = refusal(config);
    EXPECT_NE(message.find(c.part), std::string::npos) << c.key << ": " << message;
    EXPECT_EQ(message.rfind("config.json", 0), 0u) << message;
  }
  EXPECT_EQ(refusal(plain()), "");
  EXPECT_NE(refusal(Json::array()), "");
}

TEST(ModelConfigTest, FillsInWhatIsLeftOut) {
  Json json = plain();
  json.erase("num_key_value_heads");
  json["eos_token_id"] = {2, 7};
  const ModelConfig config = parse_model_config(json, "config.json");
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.eos, (std::vector<std::int32_t>{2, 7}));
  EXPECT_EQ(config.bos, -1);
  EXPECT_EQ(config.windows, (std::vector<std::int64_t>{0, 0}));
  EXPECT_FALSE(config.tied);
}

TEST(ModelConfigTest, SlidingWindowsFollowTheFamily) {
  Json json = plain();
  json["sliding_window"] = 16;
  EXPECT_EQ(parse_model_config(json, "c").windows, (std::vector<std::int64_t>{0, 0}));  // llama has none
  json["model_type"] = "mistral";
  EXPECT_EQ(parse_model_config(json, "c").windows, (std::vector<std::int64_t>{16, 16}));
  json["model_type"] = "qwen2";
  json["use_sliding_window"] = true;
  json["max_window_layers"] = 1;
  EXPECT_EQ(parse_model_config(json, "c").windows, (std::vector<std::int64_t>{0, 16}));
  json["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(parse_model_config(json, "c").windows, (std::vector<std::int64_t>{16, 0}));
}

TEST(RopeFrequencies, Llama3LeavesShortWavesAndStretchesLongOnes) {
  const RopeConfig plain_rope{.theta = 500000};
  RopeConfig scaled = plain_rope;
  scaled.type = RopeConfig::Type::llama3;
  scaled.factor = 8;
  scaled.original_max_positions = 8192;
  const auto before = rope_inverse_frequencies(plain_rope, 128),
             after = rope_inverse_frequencies(scaled, 128);
  EXPECT_EQ(after.front(), before.front());
  EXPECT_FLOAT_EQ(after.back(), before.back() / 8);
  for (std::size_t i = 1; i < after.size(); ++i)
    EXPECT_LT(after[i], after[i - 1]);  // the ramp keeps the order
}

TEST(Linears, AreListedInTheOrderTheyRun) {
  const auto linears = list_linears(parse_model_config(plain(), "c"));
  ASSERT_EQ(linears.size(), 15u);
  EXPECT_EQ(linears[0].name, "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(linears[13].name, "model.layers.1.mlp.down_proj");
  EXPECT_EQ(linears[13].in, 96);
  EXPECT_EQ(linears[14].name, "lm_head");
  EXPECT_EQ(linears[1].out, 32);
}

}  // namespace
}  // namespace halfbyte
