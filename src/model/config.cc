#include "model/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "core/fail.h"

namespace halfbyte {

namespace {

// What differs between the families; the tensors have the same names in all of them.
struct Family {
  std::string_view model_type;
  bool qkv_bias;  // always there
  bool qk_norm;
  bool reads_attention_bias;  // config's attention_bias adds biases to q, k, v and o
  bool window_by_default;     // sliding_window holds for all layers when set
};

constexpr std::array<Family, 4> kFamilies{{
    {"llama", false, false, true, false},
    {"mistral", false, false, false, true},
    {"qwen2", true, false, false, false},
    {"qwen3", false, true, true, false},
}};

const Family& family_of(const std::string& model_type, const std::string& file) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  fail(ErrorKind::unsupported, "{}: model_type \"{}\" is not one halfbyte runs ({})", file, model_type,
       known);
}

std::int64_t positive(const Json& config, std::string_view key, const std::string& file, std::int64_t limit) {
  const std::int64_t value = json_int64(config, key, file);
  if (value < 1 || value > limit) fail_input("{}: {} is {}, expected 1 to {}", file, key, value, limit);
  return value;
}

RopeConfig parse_rope(const Json& config, const std::string& file) {
  RopeConfig rope;
  // transformers 5 keeps all in rope_parameters; before, theta stood at the top and the rest in rope_scaling.
  const Json* parameters = json_find(config, "rope_parameters");
  const std::string where = file + (parameters ? ": rope_parameters" : ": rope_scaling");
  if (!parameters) parameters = json_find(config, "rope_scaling");
  rope.theta = json_optional_double(config, "rope_theta", file).value_or(rope.theta);
  if (const auto partial = json_optional_double(config, "partial_rotary_factor", file);
      partial && *partial != 1.0)
    fail(ErrorKind::unsupported, "{}: partial_rotary_factor {} is not supported, only 1", file, *partial);
  if (parameters) {
    rope.theta = json_optional_double(*parameters, "rope_theta", where).value_or(rope.theta);
    auto type = json_optional_string(*parameters, "rope_type", where);
    if (!type) type = json_optional_string(*parameters, "type", where);
    if (!type || *type == "default") {
      rope.type = RopeConfig::Type::plain;
    } else if (*type == "linear") {
      rope.type = RopeConfig::Type::linear;
      rope.factor = json_double(*parameters, "factor", where);
    } else if (*type == "llama3") {
      rope.type = RopeConfig::Type::llama3;
      rope.factor = json_double(*parameters, "factor", where);
      rope.low_freq_factor = json_double(*parameters, "low_freq_factor", where);
      rope.high_freq_factor = json_double(*parameters, "high_freq_factor", where);
      rope.original_max_positions = json_double(*parameters, "original_max_position_embeddings", where);
      if (!(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor &&
            rope.original_max_positions > 0))
        fail_input(
            "{}: low_freq_factor {}, high_freq_factor {} and original_max_position_embeddings {} make no "
            "ramp",
            where, rope.low_freq_factor, rope.high_freq_factor, rope.original_max_positions);
    } else {
      fail(ErrorKind::unsupported, "{}: rope type \"{}\" is not supported (default, linear, llama3 are)",
           where, *type);
    }
  }
  if (!(rope.theta > 0) || !(rope.factor >= 1) || !std::isfinite(rope.theta) || !std::isfinite(rope.factor))
    fail_input("{}: rope_theta {} and factor {} must be positive and at least 1", where, rope.theta,
               rope.factor);
  return rope;
}

std::vector<std::int64_t> parse_windows(const Json& config, const Family& family, std::int64_t layers,
                                        const std::string& file) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  const std::int64_t window = json_optional_int64(config, "sliding_window", file).value_or(0);
  if (window < 0) fail_input("{}: sliding_window is {}, expected a positive number or null", file, window);
  if (window == 0) return windows;
  if (const Json* types = json_find(config, "layer_types")) {
    if (!types->is_array() || types->size() != windows.size())
      fail_input("{}: layer_types must list {} layers", file, layers);
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const Json& type = (*types)[i];
      if (type == "sliding_attention")
        windows[i] = window;
      else if (type != "full_attention")
        fail(ErrorKind::unsupported,
             "{}: layer_types[{}] is {}, expected full_attention or sliding_attention", file, i,
             type.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    }
  } else if (family.window_by_default) {
    for (auto& layer : windows) layer = window;
  } else if (json_optional_bool(config, "use_sliding_window", file).value_or(false)) {
    const std::int64_t from = json_optional_int64(config, "max_window_layers", file).value_or(0);
    for (std::int64_t i = std::max<std::int64_t>(from, 0); i < layers; ++i)
      windows[static_cast<std::size_t>(i)] = window;
  }
  return windows;
}

std::int32_t token_id(const Json& value, std::string_view key, std::int64_t vocab, const std::string& file) {
  if (!value.is_number_integer() || value < 0 || value >= vocab)
    fail_input("{}: {} must hold token ids below vocab_size {}", file, key, vocab);
  return value.get<std::int32_t>();
}

void add_end_tokens(const Json& config, const std::string& file, ModelConfig& model) {
  const Json* eos = json_find(config, "eos_token_id");
  if (!eos) return;
  const Json list = eos->is_array() ? *eos : Json::array({*eos});
  for (const Json& value : list) {
    const std::int32_t id = token_id(value, "eos_token_id", model.vocab, file);
    if (std::find(model.eos.begin(), model.eos.end(), id) == model.eos.end()) model.eos.push_back(id);
  }
}

}  // namespace

ModelConfig parse_model_config(const Json& config, const std::string& file) {
  if (!config.is_object()) fail_input("{}: expected a JSON object", file);
  ModelConfig model;
  model.model_type = json_string(config, "model_type", file);
  const Family& family = family_of(model.model_type, file);

  constexpr std::int64_t kLargest = std::int64_t{1} << 24;
  model.hidden = positive(config, "hidden_size", file, kLargest);
  model.intermediate = positive(config, "intermediate_size", file, kLargest);
  model.layers = positive(config, "num_hidden_layers", file, 1 << 16);
  model.heads = positive(config, "num_attention_heads", file, 1 << 16);
  model.vocab = positive(config, "vocab_size", file, kLargest);
  model.kv_heads = json_find(config, "num_key_value_heads")
                       ? positive(config, "num_key_value_heads", file, 1 << 16)
                       : model.heads;
  if (json_find(config, "head_dim")) {
    model.head_dim = positive(config, "head_dim", file, 1 << 14);
  } else {
    if (model.hidden % model.heads != 0)
      fail_input("{}: hidden_size {} is no multiple of num_attention_heads {} and head_dim is not given",
                 file, model.hidden, model.heads);
    model.head_dim = model.hidden / model.heads;
  }
  if (model.heads % model.kv_heads != 0)
    fail_input("{}: num_attention_heads {} is no multiple of num_key_value_heads {}", file, model.heads,
               model.kv_heads);
  if (model.head_dim % 2 != 0)
    fail_input("{}: head_dim {} is odd, the rotary embedding needs pairs", file, model.head_dim);

  const std::string activation = json_optional_string(config, "hidden_act", file).value_or("silu");
  if (activation != "silu")
    fail(ErrorKind::unsupported, "{}: hidden_act \"{}\" is not supported, only silu", file, activation);
  model.rms_eps = json_optional_double(config, "rms_norm_eps", file).value_or(1e-6);
  if (!(model.rms_eps > 0 && model.rms_eps < 1))
    fail_input("{}: rms_norm_eps is {}, expected above 0", file, model.rms_eps);
  model.max_positions = json_optional_int64(config, "max_position_embeddings", file).value_or(0);
  model.rope = parse_rope(config, file);
  model.tied = json_optional_bool(config, "tie_word_embeddings", file).value_or(false);
  model.qkv_bias = family.qkv_bias;
  if (family.reads_attention_bias && json_optional_bool(config, "attention_bias", file).value_or(false))
    model.qkv_bias = model.o_bias = true;
  model.mlp_bias =
      model.model_type == "llama" && json_optional_bool(config, "mlp_bias", file).value_or(false);
  model.qk_norm = family.qk_norm;
  model.windows = parse_windows(config, family, model.layers, file);

  if (const Json* bos = json_find(config, "bos_token_id"))
    model.bos = token_id(*bos, "bos_token_id", model.vocab, file);
  add_end_tokens(config, file, model);
  return model;
}

ModelConfig load_model_config(const std::filesystem::path& model_dir) {
  const auto path = model_dir / "config.json";
  return parse_model_config(read_json_file(path), path.string());
}

void read_generation_config(const std::filesystem::path& model_dir, ModelConfig& config) {
  const auto path = model_dir / "generation_config.json";
  std::error_code error;
  if (std::filesystem::exists(path, error)) add_end_tokens(read_json_file(path), path.string(), config);
}

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim) {
  std::vector<float> frequencies(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float plain = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
    frequencies[i] = plain;
    if (rope.type == RopeConfig::Type::linear) frequencies[i] = plain / static_cast<float>(rope.factor);
    if (rope.type == RopeConfig::Type::llama3) {
      const double wavelength = 2 * std::numbers::pi / static_cast<double>(plain);
      const double longest = rope.original_max_positions / rope.low_freq_factor;
      const double shortest = rope.original_max_positions / rope.high_freq_factor;
      if (wavelength > longest) {
        frequencies[i] = plain / static_cast<float>(rope.factor);
      } else if (wavelength >= shortest) {
        const double ramp = (rope.original_max_positions / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
        frequencies[i] = static_cast<float>((1 - ramp) * static_cast<double>(plain) / rope.factor +
                                            ramp * static_cast<double>(plain));
      }
    }
  }
  return frequencies;
}

}  // namespace halfbyte
