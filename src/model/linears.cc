#include "model/linears.h"

#include <numeric>

namespace halfbyte {

std::string input_name(LinearInput input, std::int64_t layer) {
  const auto in_layer = [&](const char* part) {
    return "model.layers." + std::to_string(layer) + "." + part;
  };
  switch (input) {
    case LinearInput::attention:
      return in_layer("attention");
    case LinearInput::attention_output:
      return in_layer("attention_output");
    case LinearInput::mlp:
      return in_layer("mlp");
    case LinearInput::mlp_product:
      return in_layer("mlp_product");
    case LinearInput::head:
      break;
  }
  return "head";
}

std::vector<LinearInfo> list_linears(const ModelConfig& config) {
  const std::int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  std::vector<LinearInfo> linears;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    using enum LinearInput;
    linears.push_back({layer + "self_attn.q_proj", i, attention, q, config.hidden, config.qkv_bias});
    linears.push_back({layer + "self_attn.k_proj", i, attention, kv, config.hidden, config.qkv_bias});
    linears.push_back({layer + "self_attn.v_proj", i, attention, kv, config.hidden, config.qkv_bias});
    linears.push_back({layer + "self_attn.o_proj", i, attention_output, config.hidden, q, config.o_bias});
    linears.push_back({layer + "mlp.gate_proj", i, mlp, config.intermediate, config.hidden, config.mlp_bias});
    linears.push_back({layer + "mlp.up_proj", i, mlp, config.intermediate, config.hidden, config.mlp_bias});
    linears.push_back(
        {layer + "mlp.down_proj", i, mlp_product, config.hidden, config.intermediate, config.mlp_bias});
  }
  linears.push_back({"lm_head", -1, LinearInput::head, config.vocab, config.hidden, false});
  return linears;
}

std::vector<InputProducer> list_producers(const ModelConfig& config) {
  const auto identity = [](std::int64_t channels) {
    std::vector<std::int32_t> rows(static_cast<std::size_t>(channels));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  };
  std::vector<std::int32_t> value_rows;  // of the channels that attention puts out
  const std::int64_t shared = config.heads / config.kv_heads;
  for (std::int64_t head = 0; head < config.heads; ++head)
    for (std::int64_t d = 0; d < config.head_dim; ++d)
      value_rows.push_back(static_cast<std::int32_t>(head / shared * config.head_dim + d));

  std::vector<InputProducer> producers;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    using enum LinearInput;
    producers.push_back(
        {input_name(attention, i), layer + "input_layernorm.weight", identity(config.hidden)});
    producers.push_back({input_name(attention_output, i), layer + "self_attn.v_proj.weight", value_rows});
    producers.push_back(
        {input_name(mlp, i), layer + "post_attention_layernorm.weight", identity(config.hidden)});
    producers.push_back(
        {input_name(mlp_product, i), layer + "mlp.up_proj.weight", identity(config.intermediate)});
  }
  return producers;
}

}  // namespace halfbyte
