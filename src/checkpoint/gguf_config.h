// What a GGUF file says about its model: sizes, rope, tensor names; and the config.json that says the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.h"
#include "io/json.h"

namespace halfbyte {

struct GgufModel {
  std::string arch;
  std::int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, context = 0;
  double norm_eps = 0, rope_theta = 0;
  bool tied = false;            // no output.weight: the embedding is used
  bool attention_bias = false;  // on q, k, v; with llama and qwen3 on the output too
  bool mlp_bias = false;
};

// Sizes and switches, checked for plausibility; throws Error naming the key.
GgufModel read_gguf_model(const GgufFile& file);

// One tensor to be written: where it comes from and what it is called.
struct GgufSlot {
  const GgufTensor* source = nullptr;
  std::string name;                   // in the Hugging Face folder
  std::int64_t unpermute = 0;         // heads whose rows were interleaved for rope (0: rows stay as they are)
  const GgufTensor* scale = nullptr;  // [1] F32 that multiplies the values (NVFP4), or none
};

// All tensors of the model, each checked to be there, of the right shape and decodable; any other tensor in the file is
// refused.
std::vector<GgufSlot> list_gguf_tensors(const GgufFile& file, const GgufModel& model);

// The name in a GGUF file of a tensor of a Hugging Face folder, and whether architecture llama interleaves its rows for rope:
// row 2b + a of a head is row a * half + b of the folder's. Nothing for tensors that have no place there.
struct GgufName {
  std::string name;
  bool interleaved = false;
};
std::optional<GgufName> find_gguf_name(std::string_view hf);

// config.json, without the token ids.
Json gguf_config_json(const GgufFile& file, const GgufModel& model);

// The rope_scaling entry, or null where positions are not scaled. Llama 3's scaling is only known by the divisors it
// leads to (rope_freqs.weight); it is accepted where parameters reproduce all of them.
Json gguf_rope_scaling(const GgufFile& file, const GgufModel& model);

}  // namespace halfbyte
