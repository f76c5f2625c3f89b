// The keys of a GGUF file that describe the model, made from config.json.
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "checkpoint/gguf_export.h"
#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

struct Family {
  std::string_view model_type, arch;
};
constexpr Family kFamilies[] = {
    {"llama", "llama"}, {"mistral", "llama"}, {"qwen2", "qwen2"}, {"qwen3", "qwen3"}};

// Llama 3: see gguf_rope.cc, which recognises these divisors.
std::vector<float> llama3_divisors(const Json& rope, double theta, std::int64_t head_dim,
                                   const std::string& where) {
  const double factor = json_double(rope, "factor", where), low = json_double(rope, "low_freq_factor", where),
               high = json_double(rope, "high_freq_factor", where),
               context = json_double(rope, "original_max_position_embeddings", where);
  if (!(factor >= 1 && low > 0 && high > low && context >= 1))
    fail_input("{}: factor {}, low_freq_factor {}, high_freq_factor {} and original context {} cannot be",
               where, factor, low, high, context);
  std::vector<float> divisors;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const double wavelength =
        2 * std::numbers::pi * std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    const double turns = context / wavelength, smooth = (turns - low) / (high - low);
    divisors.push_back(static_cast<float>(turns > high  ? 1
                                          : turns < low ? factor
                                                        : 1 / ((1 - smooth) / factor + smooth)));
  }
  return divisors;
}

std::uint32_t size_key(const Json& config, const char* key, const std::string& where) {
  const std::int64_t size = json_int64(config, key, where);
  if (size < 1 || size > 0x7FFFFFFF) fail_input("{}: {} is {}, expected 1 to 2147483647", where, key, size);
  return static_cast<std::uint32_t>(size);
}

void check_attention(const Json& config, const std::string& where) {
  const auto window = json_optional_int64(config, "sliding_window", where);
  if (window && json_optional_bool(config, "use_sliding_window", where).value_or(true) &&
      *window < json_int64(config, "max_position_embeddings", where))
    fail(ErrorKind::unsupported, "{}: a sliding window of {} tokens is not written to GGUF", where, *window);
  const auto act = json_optional_string(config, "hidden_act", where);
  if (act && *act != "silu")
    fail(ErrorKind::unsupported, "{}: hidden_act is {}, expected silu", where, quote(*act));
}

}  // namespace

GgufTarget gguf_model_keys(const Checkpoint& checkpoint, GgufKeys& keys) {
  const Json& config = checkpoint.config();
  const std::string& where = checkpoint.config_file();
  const std::string type = json_string(config, "model_type", where);
  GgufTarget target;
  for (const Family& family : kFamilies)
    if (family.model_type == type) target.arch = family.arch;
  if (target.arch.empty())
    fail(ErrorKind::unsupported, "{}: model_type is {}; llama, mistral, qwen2 and qwen3 are written to GGUF",
         where, quote(type));
  check_attention(config, where);
  const std::uint32_t hidden = size_key(config, "hidden_size", where),
                      heads = size_key(config, "num_attention_heads", where);
  target.head_dim = json_optional_int64(config, "head_dim", where).value_or(hidden / heads);
  if (target.head_dim < 2 || target.head_dim % 2 != 0 || target.head_dim > 0xFFFF)
    fail_input("{}: heads of {} values, expected an even number", where, target.head_dim);
  const Shape embedding = checkpoint.shape("model.embed_tokens.weight");
  if (embedding.size() != 2)
    fail_input("{}: the embedding has shape {}, expected a matrix", checkpoint.files().path(),
               to_string(embedding));
  target.vocab = embedding[0];

  // transformers 5 keeps all of rope in one member, older files in two.
  const Json* parameters = json_find(config, "rope_parameters");
  const Json* rope = parameters ? parameters : json_find(config, "rope_scaling");
  const double theta = parameters ? json_optional_double(*parameters, "rope_theta", where).value_or(10000.0)
                                  : json_optional_double(config, "rope_theta", where).value_or(10000.0);
  std::string scaling = "default";
  if (rope) {
    auto name = json_optional_string(*rope, "rope_type", where);
    if (!name) name = json_optional_string(*rope, "type", where);
    scaling = name.value_or("default");
  }

  keys.emplace_back("general.architecture", target.arch);
  keys.emplace_back("general.type", std::string("model"));
  keys.emplace_back("general.name", checkpoint.dir().filename().string());
  const std::string a = target.arch + ".";
  const auto head_dim = static_cast<std::uint32_t>(target.head_dim);
  keys.emplace_back(a + "block_count", size_key(config, "num_hidden_layers", where));
  keys.emplace_back(a + "context_length", size_key(config, "max_position_embeddings", where));
  keys.emplace_back(a + "embedding_length", hidden);
  keys.emplace_back(a + "feed_forward_length", size_key(config, "intermediate_size", where));
  keys.emplace_back(a + "attention.head_count", heads);
  keys.emplace_back(a + "attention.head_count_kv", json_find(config, "num_key_value_heads")
                                                       ? size_key(config, "num_key_value_heads", where)
                                                       : heads);
  keys.emplace_back(a + "attention.layer_norm_rms_epsilon",
                    static_cast<float>(json_optional_double(config, "rms_norm_eps", where).value_or(1e-6)));
  keys.emplace_back(a + "attention.key_length", head_dim);
  keys.emplace_back(a + "attention.value_length", head_dim);
  keys.emplace_back(a + "rope.dimension_count", head_dim);
  keys.emplace_back(a + "rope.freq_base", static_cast<float>(theta));
  keys.emplace_back(a + "vocab_size", static_cast<std::uint32_t>(target.vocab));
  if (scaling == "linear") {
    keys.emplace_back(a + "rope.scaling.type", std::string("linear"));
    keys.emplace_back(a + "rope.scaling.factor", static_cast<float>(json_double(*rope, "factor", where)));
  } else if (scaling == "llama3" && target.arch == "llama") {
    target.rope_divisors = llama3_divisors(*rope, theta, target.head_dim, where);
    keys.emplace_back(a + "rope.scaling.original_context_length",
                      size_key(*rope, "original_max_position_embeddings", where));
  } else if (scaling != "default") {
    fail(ErrorKind::unsupported, "{}: the rope scaling {} is not written to GGUF", where, quote(scaling));
  }
  return target;
}

}  // namespace halfbyte
