// Hyperparameters of a GGUF file and the config.json made of them.
#include "checkpoint/gguf_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

struct Family {
  std::string_view arch, model_type, class_name;
};
constexpr Family kFamilies[] = {
    {"llama", "llama", "LlamaForCausalLM"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "qwen3", "Qwen3ForCausalLM"},
};

const Family& family(const GgufFile& file, std::string_view arch) {
  for (const Family& row : kFamilies)
    if (row.arch == arch) return row;
  fail(ErrorKind::unsupported,
       "{}: the architecture {} is not supported; halfbyte imports llama, qwen2 and qwen3", file.path(),
       quote(arch));
}

// A size between 1 and 2^31 - 1; fallback 0: the key must be there.
std::int64_t size_of(const GgufFile& file, const std::string& key, std::int64_t fallback = 0) {
  if (fallback && !file.has(key)) return fallback;
  const GgufValue* value = file.find(key);
  if (value && value->type == GgufType::array)
    fail(ErrorKind::unsupported,
         "{}: the key {} gives one value a layer, but only equal layers are supported", file.path(),
         quote(key));
  const std::int64_t size = file.integer(key);
  if (size < 1 || size > 0x7FFFFFFF)
    fail_input("{}: the key {} is {}, expected 1 to 2147483647", file.path(), quote(key), size);
  return size;
}

double positive(const GgufFile& file, const std::string& key, double value) {
  if (!std::isfinite(value) || value <= 0)
    fail_input("{}: the key {} is {}, expected a positive number", file.path(), quote(key), value);
  return value;
}

// Features that change the result and that the families written here do not have.
void refuse_extras(const GgufFile& file, const std::string& prefix) {
  for (const char* name : {"expert_count", "attention.sliding_window"}) {
    const std::string key = prefix + name;
    if (file.has(key) && file.integer(key) != 0)
      fail(ErrorKind::unsupported, "{}: the key {} is {}, and such models are not supported", file.path(),
           quote(key), file.integer(key));
  }
}

}  // namespace

GgufModel read_gguf_model(const GgufFile& file) {
  GgufModel model;
  model.arch = std::string(file.string("general.architecture"));
  family(file, model.arch);
  const std::string prefix = model.arch + ".";
  refuse_extras(file, prefix);
  model.layers = size_of(file, prefix + "block_count");
  model.hidden = size_of(file, prefix + "embedding_length");
  model.ffn = size_of(file, prefix + "feed_forward_length");
  model.heads = size_of(file, prefix + "attention.head_count");
  model.kv_heads = size_of(file, prefix + "attention.head_count_kv", model.heads);
  model.context = size_of(file, prefix + "context_length");
  if (model.heads % model.kv_heads != 0)
    fail_input("{}: {} attention heads cannot share {} key heads", file.path(), model.heads, model.kv_heads);

  const std::int64_t rope =
      size_of(file, prefix + "rope.dimension_count", std::max<std::int64_t>(model.hidden / model.heads, 1));
  model.head_dim = size_of(file, prefix + "attention.key_length", rope);
  if (model.head_dim % 2 != 0)
    fail_input("{}: has heads of {} values, expected an even number", file.path(), model.head_dim);
  const std::int64_t value_length = size_of(file, prefix + "attention.value_length", model.head_dim);
  if (value_length != model.head_dim || (file.has(prefix + "rope.dimension_count") && rope != model.head_dim))
    fail(ErrorKind::unsupported,
         "{}: keys of {}, values of {} and rope over {} values are not supported together", file.path(),
         model.head_dim, value_length, rope);

  const std::string eps = prefix + "attention.layer_norm_rms_epsilon", theta = prefix + "rope.freq_base";
  model.norm_eps = positive(file, eps, file.number(eps));
  model.rope_theta = positive(file, theta, file.has(theta) ? file.number(theta) : 10000.0);

  const GgufTensor& embedding = file.tensor("token_embd.weight");
  if (embedding.shape.size() != 2)
    fail_input("{}: tensor \"token_embd.weight\" has the shape {}, expected [tokens, {}]", file.path(),
               to_string(embedding.shape), model.hidden);
  model.vocab = embedding.shape[0];
  model.tied = !file.find_tensor("output.weight");
  model.attention_bias = file.find_tensor("blk.0.attn_q.bias") != nullptr;
  model.mlp_bias = file.find_tensor("blk.0.ffn_gate.bias") != nullptr;
  return model;
}

Json gguf_config_json(const GgufFile& file, const GgufModel& model) {
  const Family& row = family(file, model.arch);
  Json config = {
      {"architectures", {row.class_name}},
      {"model_type", row.model_type},
      {"hidden_size", model.hidden},
      {"intermediate_size", model.ffn},
      {"num_hidden_layers", model.layers},
      {"num_attention_heads", model.heads},
      {"num_key_value_heads", model.kv_heads},
      {"head_dim", model.head_dim},
      {"vocab_size", model.vocab},
      {"max_position_embeddings", model.context},
      {"rms_norm_eps", model.norm_eps},
      {"rope_theta", model.rope_theta},
      {"rope_scaling", gguf_rope_scaling(file, model)},
      {"tie_word_embeddings", model.tied},
      {"hidden_act", "silu"},
      {"torch_dtype", "bfloat16"},
  };
  if (model.arch != "qwen2") config["attention_bias"] = model.attention_bias;
  if (model.arch == "llama") config["mlp_bias"] = model.mlp_bias;
  if (model.arch != "llama") config["use_sliding_window"] = false;
  return config;
}

}  // namespace halfbyte
