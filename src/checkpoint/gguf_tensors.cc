// Names, shapes and row orders of the tensors of a GGUF file.
#include <array>
#include <unordered_set>

#include "checkpoint/gguf_config.h"
#include "core/fail.h"
#include "formats/ggml_blocks.h"
#include "io/text.h"

namespace halfbyte {

namespace {

enum class Extent { none, hidden, ffn, query, key, head };
enum class When { always, attention_bias, output_bias, mlp_bias, head_norm };
enum class Rows { same, query_heads, key_heads };

struct Row {
  std::string_view gguf, hf;
  Extent outputs, inputs;  // inputs none: one-dimensional
  When when = When::always;
  Rows rows = Rows::same;
};

// Tensors of a layer: blk.I.GGUF is model.layers.I.HF.
constexpr Row kLayer[] = {
    {"attn_norm.weight", "input_layernorm.weight", Extent::hidden, Extent::none},
    {"attn_q.weight", "self_attn.q_proj.weight", Extent::query, Extent::hidden, When::always,
     Rows::query_heads},
    {"attn_q.bias", "self_attn.q_proj.bias", Extent::query, Extent::none, When::attention_bias,
     Rows::query_heads},
    {"attn_k.weight", "self_attn.k_proj.weight", Extent::key, Extent::hidden, When::always, Rows::key_heads},
    {"attn_k.bias", "self_attn.k_proj.bias", Extent::key, Extent::none, When::attention_bias,
     Rows::key_heads},
    {"attn_v.weight", "self_attn.v_proj.weight", Extent::key, Extent::hidden},
    {"attn_v.bias", "self_attn.v_proj.bias", Extent::key, Extent::none, When::attention_bias},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", Extent::head, Extent::none, When::head_norm},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", Extent::head, Extent::none, When::head_norm},
    {"attn_output.weight", "self_attn.o_proj.weight", Extent::hidden, Extent::query},
    {"attn_output.bias", "self_attn.o_proj.bias", Extent::hidden, Extent::none, When::output_bias},
    {"ffn_norm.weight", "post_attention_layernorm.weight", Extent::hidden, Extent::none},
    {"ffn_gate.weight", "mlp.gate_proj.weight", Extent::ffn, Extent::hidden},
    {"ffn_gate.bias", "mlp.gate_proj.bias", Extent::ffn, Extent::none, When::mlp_bias},
    {"ffn_up.weight", "mlp.up_proj.weight", Extent::ffn, Extent::hidden},
    {"ffn_up.bias", "mlp.up_proj.bias", Extent::ffn, Extent::none, When::mlp_bias},
    {"ffn_down.weight", "mlp.down_proj.weight", Extent::hidden, Extent::ffn},
    {"ffn_down.bias", "mlp.down_proj.bias", Extent::hidden, Extent::none, When::mlp_bias},
};

std::int64_t extent(const GgufModel& model, Extent which) {
  switch (which) {
    case Extent::hidden:
      return model.hidden;
    case Extent::ffn:
      return model.ffn;
    case Extent::query:
      return model.heads * model.head_dim;
    case Extent::key:
      return model.kv_heads * model.head_dim;
    case Extent::head:
      return model.head_dim;
    case Extent::none:
      break;
  }
  return 0;
}

bool expected(const GgufModel& model, When when) {
  switch (when) {
    case When::always:
      return true;
    case When::attention_bias:
      return model.attention_bias;
    case When::output_bias:
      return model.attention_bias && model.arch != "qwen2";
    case When::mlp_bias:
      return model.mlp_bias && model.arch == "llama";
    case When::head_norm:
      return model.arch == "qwen3";
  }
  return false;
}

class Lister {
 public:
  Lister(const GgufFile& file, const GgufModel& model) : file_(file), model_(model) {}

  void add(const std::string& gguf, std::string hf, const Shape& shape, Rows rows) {
    const GgufTensor& tensor = file_.tensor(gguf);
    if (tensor.shape != shape)
      fail_input("{}: tensor {} has the shape {}, expected {}", file_.path(), quote(gguf),
                 to_string(tensor.shape), to_string(shape));
    const GgmlDecoder* decoder = find_ggml_decoder(tensor.type->id);
    if (!decoder)
      fail(ErrorKind::unsupported, "{}: tensor {} has the type {}, which halfbyte cannot decode",
           file_.path(), quote(gguf), tensor.type->name);
    const bool interleaved = rows != Rows::same && model_.arch == "llama";
    if (interleaved && shape.size() == 1 && decoder->block_values != 1)
      fail(ErrorKind::unsupported, "{}: tensor {} has the type {}, expected F32, F16 or BF16", file_.path(),
           quote(gguf), tensor.type->name);
    used_.insert(tensor.name);
    slots_.push_back({.source = &tensor,
                      .name = std::move(hf),
                      .unpermute = interleaved ? shape[0] / model_.head_dim : 0,
                      .scale = tensor.type->name == "NVFP4" ? scale_of(gguf) : nullptr});
  }

  std::vector<GgufSlot> finish() {
    for (const GgufTensor& tensor : file_.tensors())
      if (!used_.contains(tensor.name) && tensor.name != "rope_freqs.weight")
        fail(ErrorKind::unsupported, "{}: tensor {} has no place in a model of the architecture {}",
             file_.path(), quote(tensor.name), quote(model_.arch));
    return std::move(slots_);
  }

 private:
  // X.scale beside X.weight; X.input_scale, the scale of quantized activations, has no meaning for BF16.
  const GgufTensor* scale_of(const std::string& gguf) {
    const std::string stem = gguf.substr(0, gguf.rfind('.'));
    if (const GgufTensor* input = file_.find_tensor(stem + ".input_scale")) used_.insert(input->name);
    const GgufTensor* scale = file_.find_tensor(stem + ".scale");
    if (!scale) return nullptr;
    if (scale->type->name != "F32" || scale->shape != Shape{1})
      fail_input("{}: tensor {} is {} {}, expected F32 [1]", file_.path(), quote(scale->name),
                 scale->type->name, to_string(scale->shape));
    used_.insert(scale->name);
    return scale;
  }

  const GgufFile& file_;
  const GgufModel& model_;
  std::vector<GgufSlot> slots_;
  std::unordered_set<std::string_view> used_;
};

}  // namespace

std::vector<GgufSlot> list_gguf_tensors(const GgufFile& file, const GgufModel& model) {
  // Before any loop over layers: a layer has at least nine tensors.
  const auto present = static_cast<std::int64_t>(file.tensors().size());
  if (model.layers > present / 9)
    fail_input("{}: declares {} layers, but holds {} tensors; is it one part of a split file?", file.path(),
               model.layers, present);
  if (model.arch == "qwen2" && !model.attention_bias)
    fail_input("{}: lacks the tensor \"blk.0.attn_q.bias\" that a qwen2 model has", file.path());
  Lister lister(file, model);
  lister.add("token_embd.weight", "model.embed_tokens.weight", {model.vocab, model.hidden}, Rows::same);
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    for (const Row& row : kLayer) {
      if (!expected(model, row.when)) continue;
      Shape shape{extent(model, row.outputs)};
      if (row.inputs != Extent::none) shape.push_back(extent(model, row.inputs));
      lister.add(fmt::format("blk.{}.{}", layer, row.gguf), fmt::format("model.layers.{}.{}", layer, row.hf),
                 shape, row.rows);
    }
  lister.add("output_norm.weight", "model.norm.weight", {model.hidden}, Rows::same);
  if (!model.tied) lister.add("output.weight", "lm_head.weight", {model.vocab, model.hidden}, Rows::same);
  return lister.finish();
}

std::optional<GgufName> find_gguf_name(std::string_view hf) {
  if (hf == "model.embed_tokens.weight") return GgufName{"token_embd.weight"};
  if (hf == "model.norm.weight") return GgufName{"output_norm.weight"};
  if (hf == "lm_head.weight") return GgufName{"output.weight"};
  constexpr std::string_view kPrefix = "model.layers.";
  if (!hf.starts_with(kPrefix)) return std::nullopt;
  const std::size_t dot = hf.find('.', kPrefix.size());
  if (dot == hf.npos) return std::nullopt;
  const std::string_view layer = hf.substr(kPrefix.size(), dot - kPrefix.size()), rest = hf.substr(dot + 1);
  if (layer.empty() || layer.find_first_not_of("0123456789") != layer.npos) return std::nullopt;
  for (const Row& row : kLayer)
    if (row.hf == rest) return GgufName{fmt::format("blk.{}.{}", layer, row.gguf), row.rows != Rows::same};
  return std::nullopt;
}

}  // namespace halfbyte
