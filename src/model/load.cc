// Reading a model's weights from a checkpoint into float32.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "core/fail.h"
#include "formats/bf16.h"
#include "formats/fp16.h"
#include "io/text.h"
#include "model/model.h"
#include "ops/dequantize/op.h"

namespace halfbyte {

namespace {

void check_tensor(const Checkpoint& checkpoint, const std::string& name, const Shape& expected) {
  if (!checkpoint.has(name))
    fail_input(
        "{}: {} is missing, config.json asks for it; the model is incomplete or config.json belongs to "
        "another",
        checkpoint.files().path(), quote(name));
  const Shape found = checkpoint.shape(name);
  if (found != expected)
    fail_input("{}: {} has shape {}, config.json asks for {}", checkpoint.files().path(), quote(name),
               to_string(found), to_string(expected));
}

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, ThreadPool& pool) : checkpoint_(checkpoint), pool_(pool) {}

  // The named tensor in float32; it must have that shape.
  Array<float> tensor(const std::string& name, const Shape& expected) {
    check_tensor(checkpoint_, name, expected);
    used_.insert(name);
    parameters_ += count(expected);
    Array<float> values = checkpoint_.is_quantized(name) ? decode(name) : widen(name);
    checkpoint_.drop(name);
    // A row of the embedding matters only where its token occurs; logits() looks at what comes out.
    if (name != "model.embed_tokens.weight") check_finite(name, values);
    return values;
  }

  Linear linear(const LinearInfo& info) {
    Linear linear;
    linear.out = info.out;
    linear.in = info.in;
    if (const InputInfo* input = input_of(info)) linear.in = input->width;
    linear.weight = tensor(info.name + ".weight", {info.out, linear.in});
    parameters_ -= info.out * (linear.in - info.in);
    if (info.bias) linear.bias = tensor(info.name + ".bias", {info.out});
    const HalfbyteQuantization& quantization = checkpoint_.quantization();
    if (const auto found = quantization.tensors.find(info.name + ".weight");
        found != quantization.tensors.end()) {
      linear.activations = quantization.activations_of(found->second);
      if (!found->second.input.empty()) linear.transform = transform(found->second.input);
    }
    return linear;
  }

  std::int64_t parameters() const { return parameters_; }

  // Not-a-numbers would pass through the softmax unseen.
  void check_finite(const std::string& name, const Array<float>& values) {
    constexpr std::int64_t kPerItem = 1 << 18;
    pool_.parallel_for(ceil_div(values.size(), kPerItem), [&](std::int64_t item) {
      const std::int64_t begin = item * kPerItem, end = std::min(values.size(), begin + kPerItem);
      for (std::int64_t i = begin; i < end; ++i)
        if (!std::isfinite(values[i]))
          fail_input("{}: {} holds {} at element {}; the weights are damaged", checkpoint_.files().path(),
                     quote(name), values[i], i);
    });
  }

  // Tensors of the file that the model does not use; old exports carry the rotary frequencies, which are recomputed.
  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (std::string& name : checkpoint_.names())
      if (!used_.contains(name) && !name.ends_with("rotary_emb.inv_freq")) names.push_back(std::move(name));
    return names;
  }

 private:
  // What comes before that linear, or null.
  const InputInfo* input_of(const LinearInfo& info) const {
    const HalfbyteQuantization& quantization = checkpoint_.quantization();
    const auto tensor = quantization.tensors.find(info.name + ".weight");
    if (tensor == quantization.tensors.end() || tensor->second.input.empty()) return nullptr;
    const InputInfo& input = quantization.inputs.find(tensor->second.input)->second;
    if (input.channels != info.in)
      fail_input("{}: input {} has {} channels, but {} reads {}", checkpoint_.config_file(),
                 quote(tensor->second.input), input.channels, info.name, info.in);
    return &input;
  }

  std::shared_ptr<const LinearTransform> transform(const std::string& name) {
    auto& shared = transforms_[name];
    if (!shared) {
      LinearTransform read{.input = checkpoint_.input(name), .residual = {}};
      if (read.input.info.residual) read.residual = residual_positions(read.input);
      shared = std::make_shared<const LinearTransform>(std::move(read));
    }
    return shared;
  }

  // All columns of a quantized tensor, outliers last.
  Array<float> decode(const std::string& name) {
    Array<float> main = dequantize(checkpoint_.quantized(name), pool_);
    const QuantizedInfo& info = checkpoint_.quantization().tensors.find(name)->second;
    if (!info.outliers) return main;
    const Array<float> outliers = dequantize(checkpoint_.outliers(name), pool_);
    const std::int64_t rows = info.shape[0], width = info.shape[1], columns = width - info.outliers;
    Array<float> all(rows * width);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(main.data() + row * columns, columns, all.data() + row * width);
      std::copy_n(outliers.data() + row * info.outliers, info.outliers, all.data() + row * width + columns);
    }
    return all;
  }

  Array<float> widen(const std::string& name) {
    const TensorView& view = *checkpoint_.plain(name);
    if (view.dtype != DType::f32 && view.dtype != DType::bf16 && view.dtype != DType::f16)
      fail(ErrorKind::unsupported, "{}: {} is {}, expected F32, BF16 or F16", checkpoint_.files().path(),
           quote(name), dtype_name(view.dtype));
    constexpr std::int64_t kPerItem = 1 << 18;
    Array<float> values(view.elements());
    const std::byte* bytes = view.data.data();
    pool_.parallel_for(ceil_div(values.size(), kPerItem), [&](std::int64_t item) {
      const std::int64_t begin = item * kPerItem, end = std::min(values.size(), begin + kPerItem);
      for (std::int64_t i = begin; i < end; ++i)
        values[i] = view.dtype == DType::f32    ? load<float>(bytes, i)
                    : view.dtype == DType::bf16 ? bf16_decode(load<std::uint16_t>(bytes, i))
                                                : fp16_decode(load<std::uint16_t>(bytes, i));
    });
    return values;
  }

  const Checkpoint& checkpoint_;
  ThreadPool& pool_;
  std::set<std::string> used_;
  std::map<std::string, std::shared_ptr<const LinearTransform>> transforms_;
  std::int64_t parameters_ = 0;
};

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

  Loader loader(checkpoint, pool);
  model.embedding_ = loader.tensor("model.embed_tokens.weight", {config.vocab, config.hidden});
  const std::vector<LinearInfo> linears = list_linears(config);
  std::size_t next = 0;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    Layer layer;
    layer.attention_norm = loader.tensor(prefix + "input_layernorm.weight", {config.hidden});
    layer.mlp_norm = loader.tensor(prefix + "post_attention_layernorm.weight", {config.hidden});
    if (config.qk_norm) {
      layer.q_norm = loader.tensor(prefix + "self_attn.q_norm.weight", {config.head_dim});
      layer.k_norm = loader.tensor(prefix + "self_attn.k_norm.weight", {config.head_dim});
    }
    for (Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      *linear = loader.linear(linears[next++]);
    model.layers_.push_back(std::move(layer));
  }
  model.final_norm_ = loader.tensor("model.norm.weight", {config.hidden});

  // What the file holds decides: a head in the file is used even where config.json ties it to the embedding.
  const LinearInfo& head = linears.back();
  if (checkpoint.has(head.name + ".weight")) {
    const std::int64_t before = loader.parameters();
    model.head_ = loader.linear(head);
    model.parameters_ = loader.parameters();
    if (!model.head_.activations && same_values(model.head_.weight, model.embedding_)) {
      model.head_.weight = {};
      model.parameters_ = before;
    } else if (config.tied) {
      model.warnings_.push_back(
          fmt::format("{}: tie_word_embeddings is true, but the file holds a lm_head.weight of its own; the "
                      "file's is used",
                      checkpoint.config_file()));
    }
  } else {
    if (!config.tied)
      fail_input("{}: \"lm_head.weight\" is missing and config.json does not set tie_word_embeddings",
                 checkpoint.files().path());
    model.parameters_ = loader.parameters();
  }

  const std::vector<std::string> unused = loader.unused();
  if (!unused.empty())
    model.warnings_.push_back(
        fmt::format("{}: {} tensors are not part of a {} model and are ignored, the first is {}",
                    checkpoint.files().path(), unused.size(), config.model_type, quote(unused.front())));
  return model;
}

}  // namespace halfbyte
