// What config.json says of a llama-family model, checked and with every default spelled out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/json.h"

namespace halfbyte {

// How the rotary frequencies are made. linear: all divided by factor. llama3: long wavelengths divided by
// factor, short ones left, a ramp between (the three last fields say where).
struct RopeConfig {
  enum class Type { plain, linear, llama3 };
  Type type = Type::plain;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  double original_max_positions = 8192;
};

struct ModelConfig {
  std::string model_type;  // llama, mistral, qwen2, qwen3
  std::int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  std::int64_t max_positions = 0;
  double rms_eps = 1e-6;
  RopeConfig rope;
  bool tied = false;  // the head is the embedding, unless the file holds a head
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;               // RMSNorm over each head of q and k, before the rotation
  std::vector<std::int64_t> windows;  // per layer: positions a token sees, itself included; 0: all
  std::vector<std::int32_t> eos;      // any of these ends a generation
  std::int32_t bos = -1;              // -1: none
};

// Reads config.json's fields; file names it in messages. Throws bad_input for missing or impossible fields
// and unsupported, by name, for model types, activations and rope types that halfbyte does not run.
ModelConfig parse_model_config(const Json& config, const std::string& file);
ModelConfig load_model_config(const std::filesystem::path& model_dir);

// Adds the end tokens that generation_config.json lists, where there is one: chat models keep their end of turn there.
void read_generation_config(const std::filesystem::path& model_dir, ModelConfig& config);

// The head_dim/2 inverse frequencies of the rotary embedding in float32, scaling applied.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim);

}  // namespace halfbyte
