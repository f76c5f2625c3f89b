#include "model/linears.h"

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

}  // namespace halfbyte
