// Reading a model's weights from a checkpoint into float32.
#include <algorithm>
#include <cstring>

#include "core/fail.h"
#include "model/model.h"
#include "model/weight_reader.h"

namespace halfbyte {

namespace {

// Whether the file's head is the embedding bit for bit; then it costs memory and says nothing new.
bool same_values(const Array<float>& a, const Array<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

std::vector<std::pair<std::string, Shape>> list_tensors(const ModelConfig& config) {
  std::vector<std::pair<std::string, Shape>> tensors{
      {"model.embed_tokens.weight", {config.vocab, config.hidden}}, {"model.norm.weight", {config.hidden}}};
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    tensors.push_back({prefix + "input_layernorm.weight", {config.hidden}});
    tensors.push_back({prefix + "post_attention_layernorm.weight", {config.hidden}});
    if (config.qk_norm) {
      tensors.push_back({prefix + "self_attn.q_norm.weight", {config.head_dim}});
      tensors.push_back({prefix + "self_attn.k_norm.weight", {config.head_dim}});
    }
  }
  for (const LinearInfo& linear : list_linears(config)) {
    if (linear.input == LinearInput::head) continue;
    tensors.push_back({linear.name + ".weight", {linear.out, linear.in}});
    if (linear.bias) tensors.push_back({linear.name + ".bias", {linear.out}});
  }
  return tensors;
}

}  // namespace

void check_tensors(const Checkpoint& checkpoint, const ModelConfig& config) {
  for (const auto& [name, shape] : list_tensors(config)) check_tensor(checkpoint, name, shape);
}

Model Model::load(const std::filesystem::path& dir, ThreadPool& pool) {
  const Checkpoint checkpoint(dir);
  Model model;
  model.config_ = parse_model_config(checkpoint.config(), checkpoint.config_file());
  const ModelConfig& config = model.config_;
  read_generation_config(dir, model.config_);
  model.rope_.emplace(rope_inverse_frequencies(config.rope, config.head_dim));

  WeightReader reader(checkpoint, pool);
  model.embedding_ = reader.tensor("model.embed_tokens.weight", {config.vocab, config.hidden});
  const std::vector<LinearInfo> linears = list_linears(config);
  std::size_t next = 0;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    Layer layer;
    layer.attention_norm = reader.tensor(prefix + "input_layernorm.weight", {config.hidden});
    layer.mlp_norm = reader.tensor(prefix + "post_attention_layernorm.weight", {config.hidden});
    if (config.qk_norm) {
      layer.q_norm = reader.tensor(prefix + "self_attn.q_norm.weight", {config.head_dim});
      layer.k_norm = reader.tensor(prefix + "self_attn.k_norm.weight", {config.head_dim});
    }
    for (Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      *linear = reader.linear(linears[next++]);
    model.layers_.push_back(std::move(layer));
  }
  model.final_norm_ = reader.tensor("model.norm.weight", {config.hidden});

  // What the file holds decides: a head in the file is used even where config.json ties it to the embedding.
  const LinearInfo& head = linears.back();
  if (checkpoint.has(head.name + ".weight")) {
    const std::int64_t before = reader.parameters();
    model.head_ = reader.linear(head);
    model.parameters_ = reader.parameters();
    if (!model.head_.activations && same_values(model.head_.weight, model.embedding_)) {
      model.head_.weight = {};
      model.parameters_ = before;
    } else if (config.tied) {
      model.warnings_.push_back(warning_of_own_head(checkpoint));
    }
  } else {
    if (!config.tied) fail_without_head(checkpoint);
    model.parameters_ = reader.parameters();
  }

  warn_of_unused(reader, config, model.warnings_);
  return model;
}

}  // namespace halfbyte
