#include "layerwise/sequential_rounder.h"

#include <algorithm>

#include "calibrate/moments.h"
#include "core/fail.h"
#include "formats/source_dtype.h"
#include "io/text.h"
#include "model/engine_input.h"
#include "ops/dequantize/op.h"

namespace halfbyte {

namespace {

Linear& place_in(Layer& layer, const std::string& linear) {
  const auto is = [&](const char* part) { return linear.ends_with(part); };
  return is(".q_proj")      ? layer.q
         : is(".k_proj")    ? layer.k
         : is(".v_proj")    ? layer.v
         : is(".o_proj")    ? layer.o
         : is(".gate_proj") ? layer.gate
         : is(".up_proj")   ? layer.up
                            : layer.down;
}

// Whether some weight has scales that error feedback can move (gptq.h).
bool scales_move(const QuantizePlan& plan) {
  return std::ranges::any_of(plan.tensors, [](const PlannedTensor& tensor) {
    if (!tensor.spec || tensor.spec->double_quant) return false;
    const ScaleKind kind = format_info(tensor.spec->format).scale;
    return kind == ScaleKind::absmax_f32 || kind == ScaleKind::f32;
  });
}

// The same input in the original model: scaled and gathered, without residual columns.
LinearTransform without_residual(const LinearTransform& transform) {
  LinearTransform original = transform;
  InputInfo& info = original.input.info;
  info.width = changed_columns(info);
  original.input.columns.resize(info.gathered ? static_cast<std::size_t>(info.width) : 0);
  info.residual = 0;
  original.residual.clear();
  return original;
}

}  // namespace

void check_feedback(const QuantizePlan& plan, const ModelConfig& config) {
  for (const PlannedInput& input : plan.inputs)
    if (input.transform.info.outliers)
      fail_input("error feedback does not go with outlier channels in another format, which {} has",
                 input.name);
  for (const LinearInfo& linear : list_linears(config)) {
    const auto tensor = std::ranges::find(plan.tensors, linear.name + ".weight", &PlannedTensor::name);
    if (linear.input == LinearInput::head && tensor != plan.tensors.end() && tensor->spec)
      fail_input("error feedback covers the layers' linears only; leave {} alone (--keep {})", linear.name,
                 linear.name);
  }
}

SequentialRounder::SequentialRounder(const Checkpoint& checkpoint, const ModelConfig& config,
                                     const QuantizePlan& plan, const Producers& producers,
                                     const SampleSet& samples, ThreadPool& pool, Arithmetic arithmetic)
    : checkpoint_(checkpoint),
      config_(config),
      plan_(plan),
      samples_(samples),
      pool_(pool),
      arithmetic_(arithmetic),
      linears_(list_linears(config)),
      folded_(folded_scales(checkpoint, plan, producers)),
      rope_(rope_inverse_frequencies(config.rope, config.head_dim)),
      rows_(static_cast<std::int64_t>(samples[0].size())) {
  check_feedback(plan, config);
  rope_.reserve(rows_);
  const auto count = static_cast<std::int64_t>(samples.size());
  const TensorView& embedding = *checkpoint.plain("model.embed_tokens.weight");
  quantized_.x = Array<float>(count * rows_ * config.hidden);
  float* to = quantized_.x.data();
  for (std::int64_t i = 0; i < count; ++i)
    for (const std::int32_t id : samples[static_cast<std::size_t>(i)]) {
      if (id < 0 || id >= config.vocab)
        fail_input("token id {} is outside the vocabulary of {}", id, config.vocab);
      for (std::int64_t k = 0; k < config.hidden; ++k)
        *to++ = load_element(embedding.dtype, embedding.data.data(), id * config.hidden + k);
    }
  checkpoint.drop("model.embed_tokens.weight");
  if (follows_original()) {
    original_.x = Array<float>(quantized_.x.size());
    std::ranges::copy(quantized_.x, original_.x.data());
  }
}

SequentialRounder::~SequentialRounder() = default;

std::vector<std::string> SequentialRounder::order() const {
  std::vector<std::string> names;
  for (const LinearInfo& linear : linears_) names.push_back(linear.name + ".weight");
  return names;
}

std::vector<SequentialRounder::Stream*> SequentialRounder::streams() {
  if (follows_original()) return {&quantized_, &original_};
  return {&quantized_};
}

const LinearInfo& SequentialRounder::info_of(const Weight& weight) const {
  return *std::ranges::find_if(linears_, [&](const LinearInfo& info) {
    return info.name.size() + 7 == weight.tensor.name.size() && weight.tensor.name.starts_with(info.name);
  });
}

Array<float> SequentialRounder::plain(const std::string& name, const std::vector<float>* divisors) const {
  const TensorView* view = checkpoint_.plain(name);
  if (!view) return {};
  Array<float> values(view->elements());
  for (std::int64_t i = 0; i < values.size(); ++i) {
    values[i] = load_element(view->dtype, view->data.data(), i);
    // As it is stored, so rounded to its type.
    if (divisors)
      values[i] = round_to_dtype(view->dtype, values[i] / (*divisors)[static_cast<std::size_t>(i)]);
  }
  checkpoint_.drop(name);
  return values;
}

// Norms and the linears that stay as they are; the others come through install().
void SequentialRounder::load_layer() {
  const std::string prefix = "model.layers." + std::to_string(layer_) + ".";
  const auto norm = [&](const char* name) {
    const auto divisors = folded_.find(prefix + name);
    return plain(prefix + name, divisors == folded_.end() ? nullptr : &divisors->second);
  };
  for (Stream* stream : streams()) {
    Layer layer;
    layer.attention_norm = norm("input_layernorm.weight");
    layer.mlp_norm = norm("post_attention_layernorm.weight");
    if (config_.qk_norm) {
      layer.q_norm = norm("self_attn.q_norm.weight");
      layer.k_norm = norm("self_attn.k_norm.weight");
    }
    for (const LinearInfo& info : linears_) {
      if (info.layer != layer_) continue;
      const auto tensor = std::ranges::find(plan_.tensors, info.name + ".weight", &PlannedTensor::name);
      if (tensor != plan_.tensors.end() && tensor->spec) continue;
      Linear& linear = place_in(layer, info.name);
      linear.out = info.out;
      linear.in = info.in;
      linear.weight = plain(info.name + ".weight");
      if (info.bias) linear.bias = plain(info.name + ".bias");
    }
    stream->layer = std::move(layer);
  }
}

std::shared_ptr<const LinearTransform> SequentialRounder::transform_of(const std::string& input) {
  if (input.empty()) return nullptr;
  if (transform_name_ != input) {
    LinearTransform transform{.input = stored_input(*find_input(plan_, input)), .residual = {}};
    if (transform.input.info.residual) transform.residual = residual_positions(transform.input);
    transform_ = std::make_shared<const LinearTransform>(std::move(transform));
    transform_name_ = input;
  }
  return transform_;
}

// Everything of the linear but its weight.
Linear SequentialRounder::linear_of(const LinearInfo& info, const Weight& weight) {
  Linear linear;
  linear.out = weight.shape[0];
  linear.in = weight.shape[1];
  if (info.bias) linear.bias = plain(info.name + ".bias");
  linear.activations = weight.tensor.activations;
  linear.transform = transform_of(weight.tensor.input);
  return linear;
}

void SequentialRounder::install(const LinearInfo& info, Linear quantized, const Weight& weight) {
  if (follows_original()) {
    Linear original;
    original.out = quantized.out;
    original.in = quantized.transform ? changed_columns(quantized.transform->input.info) : quantized.in;
    original.weight = Array<float>(original.out * original.in);
    for (std::int64_t n = 0; n < original.out; ++n)
      std::copy_n(weight.values.data() + n * quantized.in, original.in,
                  original.weight.data() + n * original.in);
    if (quantized.bias.size()) {
      original.bias = Array<float>(quantized.bias.size());
      std::ranges::copy(quantized.bias, original.bias.data());
    }
    if (quantized.transform)
      original.transform = std::make_shared<const LinearTransform>(without_residual(*quantized.transform));
    place_in(original_.layer, info.name) = std::move(original);
  }
  place_in(quantized_.layer, info.name) = std::move(quantized);
}

// What the linears at the present place read of that sample, before anything is done to it.
const float* SequentialRounder::input_of(Stream& stream, LayerStages& stages, std::int64_t sample) {
  const float* x = stream.x.data() + sample * rows_ * config_.hidden;
  switch (place_) {
    case LinearInput::attention:
      return stages.attention_input(stream.layer, x);
    case LinearInput::attention_output:
      return stream.attended.data() + sample * rows_ * config_.heads * config_.head_dim;
    case LinearInput::mlp:
      return stages.mlp_input(stream.layer, x);
    default:
      if (stream.product.size()) return stream.product.data() + sample * rows_ * config_.intermediate;
      stages.mlp_input(stream.layer, x);
      return stages.mlp_product(stream.layer);
  }
}

bool SequentialRounder::keeps_products() const {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  return static_cast<std::int64_t>(samples_.size()) * rows_ * config_.intermediate * 4 <= kBytes;
}

// To the next place; everything at the present one is installed.
void SequentialRounder::step() {
  const std::int64_t q_size = config_.heads * config_.head_dim, kv_size = config_.kv_heads * config_.head_dim;
  const std::int64_t products = config_.intermediate;
  using enum LinearInput;
  const auto count = static_cast<std::int64_t>(samples_.size());
  for (Stream* stream : streams()) {
    if (layer_ < 0 || (place_ == mlp && !keeps_products())) continue;
    Array<float> keys, values;
    if (place_ == attention) {
      stream->attended = Array<float>(count * rows_ * q_size);
      keys = Array<float>(rows_ * kv_size);
      values = Array<float>(rows_ * kv_size);
    }
    if (place_ == mlp) stream->product = Array<float>(count * rows_ * products);
    LayerStages stages(config_, rope_, rows_, 0, clipping_, pool_, arithmetic_);
    for (std::int64_t sample = 0; sample < count; ++sample) {
      float* x = stream->x.data() + sample * rows_ * config_.hidden;
      const float* input = input_of(*stream, stages, sample);
      if (place_ == attention) {
        const float* attended = stages.attention_output(stream->layer, keys.data(), values.data(),
                                                        config_.windows[static_cast<std::size_t>(layer_)]);
        std::copy_n(attended, rows_ * q_size, stream->attended.data() + sample * rows_ * q_size);
      } else if (place_ == attention_output) {
        stages.add_attention(stream->layer, input, x);
      } else if (place_ == mlp) {
        std::copy_n(stages.mlp_product(stream->layer), rows_ * products,
                    stream->product.data() + sample * rows_ * products);
      } else {
        stages.add_mlp(stream->layer, input, x);
      }
    }
    if (place_ == attention_output) stream->attended = {};
    if (place_ == mlp_product) stream->product = {};
  }
  place_ = place_ == attention          ? attention_output
           : place_ == attention_output ? mlp
           : place_ == mlp              ? mlp_product
                                        : attention;
  if (place_ != attention) return;
  ++layer_;
  load_layer();
}

void SequentialRounder::advance_to(const LinearInfo& info) {
  HB_DCHECK(info.layer > layer_ || (info.layer == layer_ && info.input >= place_));
  while (layer_ < info.layer || place_ != info.input) step();
}

// total += x^T x of one sample.
void SequentialRounder::add_moment(const float* x, std::int64_t columns, std::vector<double>& total) {
  part_.resize(static_cast<std::size_t>(columns * columns));
  if (arithmetic_ == Arithmetic::bf16) {
    right_.assign(x, rows_, columns, pool_);
    matmul_bf16_transposed(right_, right_, part_.data(), pool_);
  } else {
    second_moment(x, rows_, columns, part_.data(), pool_);
  }
  add_part(total);
}

// total += y^T x of one sample.
void SequentialRounder::add_cross_moment(const float* y, const float* x, std::int64_t columns,
                                         std::vector<double>& total) {
  part_.resize(static_cast<std::size_t>(columns * columns));
  if (arithmetic_ == Arithmetic::bf16) {
    left_.assign(y, rows_, columns, pool_);
    right_.assign(x, rows_, columns, pool_);
    matmul_bf16_transposed(left_, right_, part_.data(), pool_);
  } else {
    cross_moment(y, x, rows_, columns, part_.data(), pool_);
  }
  add_part(total);
}

void SequentialRounder::add_part(std::vector<double>& total) {
  total.resize(part_.size());
  constexpr std::int64_t kPiece = 1 << 16;
  const auto size = static_cast<std::int64_t>(part_.size());
  pool_.parallel_for(ceil_div(size, kPiece), [&](std::int64_t piece) {
    const auto last = static_cast<std::size_t>(std::min(size, (piece + 1) * kPiece));
    for (auto i = static_cast<std::size_t>(piece * kPiece); i < last; ++i)
      total[i] += static_cast<double>(part_[i]);
  });
}

void SequentialRounder::prepare(const LinearInfo& info, const Weight& weight, const Linear& linear) {
  const std::string name = input_name(info.input, info.layer);
  if (prepared_.input == name && prepared_.transform == linear.transform.get() &&
      prepared_.activations == linear.activations)
    return;
  const InputTransform transform = linear.transform ? linear.transform->input : unchanged_input(info.in);
  const std::int64_t width = weight.shape[1], main = changed_columns(transform.info);
  const auto residual = linear.transform ? std::span<const std::int32_t>(linear.transform->residual)
                                         : std::span<const std::int32_t>{};
  std::vector<double> moment, before,
      cross;  // of what is multiplied; of it before rounding; of the original by that
  Array<float> changed_buffer, rounded_buffer, original_buffer;
  LayerStages stages(config_, rope_, rows_, 0, clipping_, pool_, arithmetic_),
      other(config_, rope_, rows_, 0, clipping_, pool_, arithmetic_);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(samples_.size()); ++i) {
    const float* changed =
        change_input(input_of(quantized_, stages, i), rows_, transform, changed_buffer, pool_);
    const float* rounded = linear.activations ? round_input(changed, rows_, transform.info, residual,
                                                            *linear.activations, rounded_buffer, pool_)
                                              : changed;
    if (follows_original()) {
      const float* original =
          change_input(input_of(original_, other, i), rows_, transform, original_buffer, pool_);
      add_cross_moment(original, changed, main, cross);
      if (linear.activations) add_moment(changed, main, before);
    }
    add_moment(rounded, width, moment);
  }
  const double tokens = static_cast<double>(samples_.size()) * static_cast<double>(rows_);
  part_.resize(moment.size());
  for (std::size_t i = 0; i < moment.size(); ++i) part_[i] = static_cast<float>(moment[i] / tokens);
  prepared_.input = name;
  prepared_.transform = linear.transform.get();
  prepared_.activations = linear.activations;
  prepared_.feedback = std::make_unique<ErrorFeedback>(
      part_, main, width - main,
      GptqOptions{.damping = plan_.feedback.damping,
                  .kind = plan_.feedback.mean_damping ? DampingKind::mean : DampingKind::relative,
                  .name = name,
                  .passes = scales_move(plan_) ? 2 : 1},
      pool_);
  if (!follows_original()) return;
  if (!linear.activations) before = std::move(moment);  // nothing is rounded
  for (double& value : before) value /= tokens;
  for (double& value : cross) value /= tokens;
  prepared_.match = std::make_unique<OutputMatch>(before, cross, main, name, pool_);
}

QuantizedTensor SequentialRounder::round(const Weight& weight) {
  const LinearInfo& info = info_of(weight);
  advance_to(info);
  Linear linear = linear_of(info, weight);
  prepare(info, weight, linear);
  std::vector<float> target(weight.values.begin(), weight.values.end());
  if (prepared_.match) {
    const std::int64_t rows = weight.shape[0], width = weight.shape[1];
    prepared_.match->move(target.data(), rows, width, plan_.feedback.match_output, pool_);
    if (linear.transform) {
      const std::vector<std::int32_t>& residual = linear.transform->residual;
      const std::int64_t main = width - static_cast<std::int64_t>(residual.size());
      for (std::int64_t n = 0; n < rows; ++n)
        for (std::size_t j = 0; j < residual.size(); ++j)
          target[static_cast<std::size_t>(n * width + main) + j] =
              target[static_cast<std::size_t>(n * width + residual[j])];
    }
  }
  QuantizedTensor quantized =
      prepared_.feedback->quantize(target, *weight.tensor.spec, weight.global_scale, pool_, weight.name);
  linear.weight = dequantize(quantized, pool_);
  install(info, std::move(linear), weight);
  return quantized;
}

void SequentialRounder::accept(const Weight& weight, const QuantizedTensor& quantized) {
  const LinearInfo& info = info_of(weight);
  advance_to(info);
  Linear linear = linear_of(info, weight);
  linear.weight = dequantize(quantized, pool_);
  install(info, std::move(linear), weight);
}

}  // namespace halfbyte
