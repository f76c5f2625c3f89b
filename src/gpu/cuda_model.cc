// Loads a model onto a CUDA device.
#include "gpu/cuda_model.h"

#include <algorithm>
#include <cstring>

#include "core/fail.h"
#include "formats/fp16.h"
#include "formats/source_dtype.h"
#include "io/text.h"
#include "ops/attention/cuda.h"
#include "ops/fake_quantize/cuda.h"
#include "ops/transform_input/cuda.h"

namespace halfbyte::cuda {

namespace {

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, CudaArithmetic arithmetic, ThreadPool& pool)
      : checkpoint_(checkpoint), reader_(checkpoint, pool), arithmetic_(arithmetic) {}

  WeightReader& reader() { return reader_; }

  Buffer<float> values(const std::string& name, const Shape& shape) {
    return staging_.upload(std::span<const float>(reader_.tensor(name, shape).span()));
  }

  // A table as it is stored; a quantized one in float32, for rows of it are gathered.
  StoredWeight table(const std::string& name, const Shape& shape) {
    if (checkpoint_.is_quantized(name)) {
      const Array<float> values = reader_.tensor(name, shape);
      return StoredWeight::plain({.dtype = DType::f32, .shape = shape, .data = values.as_bytes()}, staging_);
    }
    reader_.claim(name, shape);
    return plain(name);
  }

  DeviceLinear linear(const LinearInfo& info) {
    const std::string name = info.name + ".weight";
    const Linear outline = reader_.outline(info);
    DeviceLinear linear;
    linear.out = outline.out;
    linear.in = outline.in;
    linear.parts = {outline.out};
    linear.bias = staging_.upload(outline.bias.span());
    linear.activations = outline.activations;
    if (outline.transform) linear.transform = transform(outline.transform);
    if (checkpoint_.is_quantized(name)) {
      linear.weight = StoredWeight::quantized(checkpoint_.quantized(name), staging_);
      if (checkpoint_.quantization().tensors.find(name)->second.outliers)
        linear.outliers = StoredWeight::quantized(checkpoint_.outliers(name), staging_);
    } else {
      linear.weight = plain(name);
      check_finite(name, linear.weight);
    }
    checkpoint_.drop(name);
    return linear;
  }

  // Linears that read the same: one, where their weights are alike.
  std::vector<DeviceLinear> joined(std::vector<DeviceLinear> linears) {
    const DeviceLinear& first = linears[0];
    std::vector<const StoredWeight*> weights;
    bool alike = linears.size() > 1;
    for (const DeviceLinear& linear : linears) {
      weights.push_back(&linear.weight);
      alike = alike && linear.outliers.empty() && linear.activations == first.activations &&
              linear.transform == first.transform &&
              linear.bias.size() == (first.bias.size() ? linear.out : 0);
    }
    if (alike && StoredWeight::can_join(weights)) {
      DeviceLinear all;
      all.weight = StoredWeight::join(weights);
      std::vector<float> bias;
      for (const DeviceLinear& linear : linears) {
        all.out += linear.out;
        all.parts.push_back(linear.out);
        const std::vector<float> own = linear.bias.download();
        bias.insert(bias.end(), own.begin(), own.end());
      }
      all.bias = staging_.upload(std::span<const float>(bias));
      all.in = first.in;
      all.activations = first.activations;
      all.transform = first.transform;
      linears.clear();
      linears.push_back(std::move(all));
    }
    for (DeviceLinear& linear : linears) finish(linear);
    return linears;
  }

  // Brings a linear into the form that is multiplied.
  void finish(DeviceLinear& linear) {
    if (arithmetic_ == CudaArithmetic::f32) return;
    const auto widen = [&](StoredWeight& weight) {
      weight.widen();
      ++widened_;
    };
    if (!linear.weight.is_plain() && !linear.weight.pack()) widen(linear.weight);
    if (!linear.outliers.empty()) widen(linear.outliers);
    if (linear.weight.is_packed() && linear.bias.size()) {
      std::vector<std::uint16_t> bias;
      for (const float value : linear.bias.download()) bias.push_back(fp16_encode(value));
      linear.bias_f16 = staging_.upload(std::span<const std::uint16_t>(bias));
    }
  }

  std::int64_t widened() const { return widened_; }  // weights that were made plain FP16

 private:
  StoredWeight plain(const std::string& name) {
    plain_dtype(checkpoint_, name);
    return StoredWeight::plain(*checkpoint_.plain(name), staging_);
  }

  std::shared_ptr<const DeviceTransform> transform(const std::shared_ptr<const LinearTransform>& host) {
    auto& shared = transforms_[host.get()];
    if (!shared) {
      const InputTransform& input = host->input;
      if (input.info.channels > kMostChannels)
        fail(ErrorKind::unsupported,
             "the model on CUDA: an input of {} channels is changed by a method, at most {} fit",
             input.info.channels, kMostChannels);
      shared = std::make_shared<const DeviceTransform>(
          DeviceTransform{.host = host,
                          .scale = staging_.upload(std::span<const float>(input.scale)),
                          .columns = staging_.upload(std::span<const std::int32_t>(input.columns)),
                          .residual = staging_.upload(std::span<const std::int32_t>(host->residual))});
    }
    return shared;
  }

  // Not-a-numbers would pass through the softmax unseen. The device looks; the host says where.
  void check_finite(const std::string& name, const StoredWeight& weight) {
    not_finite_.fill(0);
    check_status(find_not_finite(weight.data(), weight.dtype(), weight.rows() * weight.columns(),
                                 not_finite_.data(), nullptr),
                 "launching find_not_finite");
    if (!not_finite_.download()[0]) return;
    const TensorView& view = *checkpoint_.plain(name);
    for (std::int64_t i = 0; i < view.elements(); ++i)
      if (const float value = load_element(view.dtype, view.data.data(), i); !is_finite(value))
        fail_input("{}: {} holds {} at element {}; the weights are damaged", checkpoint_.files().path(),
                   quote(name), value, i);
  }

  const Checkpoint& checkpoint_;
  WeightReader reader_;
  const CudaArithmetic arithmetic_;
  Staging staging_;
  std::int64_t widened_ = 0;
  Buffer<int> not_finite_{1};
  std::map<const LinearTransform*, std::shared_ptr<const DeviceTransform>> transforms_;
};

// Whether the file's head is the embedding bit for bit; then it costs memory and says nothing new.
bool same_bytes(const Checkpoint& checkpoint, const std::string& a, const std::string& b) {
  const TensorView *left = checkpoint.plain(a), *right = checkpoint.plain(b);
  return left && right && left->dtype == right->dtype && left->data.size() == right->data.size() &&
         std::memcmp(left->data.data(), right->data.data(), left->data.size()) == 0;
}

}  // namespace

CudaModel CudaModel::load(const std::filesystem::path& dir, CudaArithmetic arithmetic, ThreadPool& pool) {
  const Checkpoint checkpoint(dir);
  CudaModel model;
  model.config = parse_model_config(checkpoint.config(), checkpoint.config_file());
  const ModelConfig& config = model.config;
  read_generation_config(dir, model.config);
  if (config.head_dim > kLargestHeadDim)
    fail(ErrorKind::unsupported, "{}: head_dim is {}, attention on CUDA goes up to {}; use --device cpu",
         checkpoint.config_file(), config.head_dim, kLargestHeadDim);

  Loader loader(checkpoint, arithmetic, pool);
  const std::string embedding = "model.embed_tokens.weight";
  model.embedding = loader.table(embedding, {config.vocab, config.hidden});
  const std::vector<LinearInfo> linears = list_linears(config);
  std::size_t next = 0;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    DeviceLayer layer;
    layer.attention_norm = loader.values(prefix + "input_layernorm.weight", {config.hidden});
    layer.mlp_norm = loader.values(prefix + "post_attention_layernorm.weight", {config.hidden});
    if (config.qk_norm) {
      layer.q_norm = loader.values(prefix + "self_attn.q_norm.weight", {config.head_dim});
      layer.k_norm = loader.values(prefix + "self_attn.k_norm.weight", {config.head_dim});
    }
    const auto take = [&](std::size_t count) {
      std::vector<DeviceLinear> taken;
      for (std::size_t j = 0; j < count; ++j) taken.push_back(loader.linear(linears[next++]));
      return loader.joined(std::move(taken));
    };
    layer.attention = take(3);
    layer.o = std::move(take(1)[0]);
    layer.mlp = take(2);
    layer.down = std::move(take(1)[0]);
    model.layers.push_back(std::move(layer));
  }
  model.final_norm = loader.values("model.norm.weight", {config.hidden});

  // What the file holds decides: a head in the file is used even where config.json ties it to the embedding.
  const LinearInfo& head = linears.back();
  model.parameters = loader.reader().parameters();
  if (!checkpoint.has(head.name + ".weight")) {
    if (!config.tied) fail_without_head(checkpoint);
  } else if (same_bytes(checkpoint, head.name + ".weight", embedding)) {
    loader.reader().claim(head.name + ".weight", {config.vocab, config.hidden});
  } else {
    model.head = loader.linear(head);
    loader.finish(model.head);
    model.parameters = loader.reader().parameters();
    if (config.tied) model.warnings.push_back(warning_of_own_head(checkpoint));
  }
  warn_of_unused(loader.reader(), config, model.warnings);
  const auto note = [&](const DeviceLinear& linear) {
    model.most_scratch = std::max({model.most_scratch, linear.weight.scratch(), linear.outliers.scratch()});
    model.widest = std::max(model.widest, linear.in);
    model.tallest = std::max(model.tallest, linear.out);
  };
  model.for_each_linear(note);
  note(model.head);
  if (loader.widened())
    model.warnings.push_back(
        fmt::format("{}: {} weights are no 4-bit ones in whole blocks and lie in FP16 on the device",
                    checkpoint.files().path(), loader.widened()));
  check_status(cudaDeviceSynchronize(), "loading the model");
  return model;
}

}  // namespace halfbyte::cuda
