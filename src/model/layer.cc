#include "model/layer.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "model/engine_input.h"
#include "ops/attention/op.h"
#include "ops/matmul_f32/op.h"
#include "ops/rms_norm/op.h"
#include "ops/silu_mul/op.h"

namespace halfbyte {

namespace {

void norm(const float* x, std::int64_t rows, const Array<float>& weight, double eps, float* out,
          ThreadPool& pool) {
  const std::int64_t columns = weight.size();
  rms_norm({.rows = rows,
            .columns = columns,
            .x = x,
            .x_stride = columns,
            .weight = weight.data(),
            .eps = static_cast<float>(eps),
            .out = out,
            .out_stride = columns},
           pool);
}

void add(float* x, const float* y, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) x[i] += y[i];
}

}  // namespace

SharedInput::SharedInput(const float* x, std::int64_t rows, std::int64_t columns, InputScratch& scratch,
                         ClippingCounts& counts, ThreadPool& pool)
    : x_(x),
      rows_(rows),
      unchanged_(unchanged_input(columns)),
      scratch_(scratch),
      counts_(counts),
      pool_(pool) {}

const float* SharedInput::for_linear(const Linear& linear) {
  if (!linear.activations && !linear.transform) return x_;
  if (!current_ || activations_ != linear.activations || transform_ != linear.transform.get()) {
    activations_ = linear.activations;
    transform_ = linear.transform.get();
    current_ = make();
  }
  return current_;
}

const float* SharedInput::make() {
  const InputTransform& input = transform_ ? transform_->input : unchanged_;
  const float* changed = change_input(x_, rows_, input, scratch_.changed, pool_);
  if (!activations_) return changed;
  if (activations_->scope == ActivationScope::fixed && input.info.global_scale != 0.0f)
    count_clipped(changed, input.info);
  const auto residual =
      transform_ ? std::span<const std::int32_t>(transform_->residual) : std::span<const std::int32_t>{};
  return round_input(changed, rows_, input.info, residual, *activations_, scratch_.rounded, pool_);
}

// Values beyond what the static scale can say: they saturate.
void SharedInput::count_clipped(const float* changed, const InputInfo& info) {
  const float limit = nvfp4_range(activations_->spec.global_scale, info.global_scale);
  const std::int64_t width = changed_columns(info), main = width - info.outliers;
  std::atomic<std::int64_t> clipped = 0;
  pool_.parallel_for(rows_, [&](std::int64_t row) {
    const float* begin = changed + row * width;
    clipped += std::count_if(begin, begin + main, [&](float value) { return std::abs(value) > limit; });
  });
  counts_.clipped += clipped;
  counts_.values += rows_ * main;
}

LayerStages::LayerStages(const ModelConfig& config, const RopeTable& rope, std::int64_t rows,
                         std::int64_t first, ClippingCounts& counts, ThreadPool& pool, Arithmetic arithmetic)
    : config_(config),
      rope_(rope),
      rows_(rows),
      first_(first),
      counts_(counts),
      pool_(pool),
      arithmetic_(arithmetic),
      normed_(rows * config.hidden),
      q_(rows * config.heads * config.head_dim),
      attended_(q_.size()),
      added_(rows * config.hidden),
      gate_(rows * config.intermediate),
      up_(rows * config.intermediate) {}

SharedInput LayerStages::input(const float* x, std::int64_t columns) {
  return {x, rows_, columns, scratch_, counts_, pool_};
}

void LayerStages::multiply(const Linear& linear, SharedInput& input, float* out) {
  const float* x = input.for_linear(linear);
  const float* bias = linear.bias.size() ? linear.bias.data() : nullptr;
  if (arithmetic_ == Arithmetic::bf16) {
    input_bf16_.assign(x, rows_, linear.in, pool_);
    weight_bf16_.assign(linear.weight.data(), linear.out, linear.in, pool_);
    return matmul_bf16(input_bf16_, weight_bf16_, bias, out, pool_);
  }
  matmul_f32({.m = rows_,
              .n = linear.out,
              .k = linear.in,
              .activation = x,
              .activation_stride = linear.in,
              .weight = linear.weight.data(),
              .weight_stride = linear.in,
              .bias = bias,
              .out = out,
              .out_stride = linear.out},
             pool_);
}

const float* LayerStages::attention_input(const Layer& layer, const float* x) {
  norm(x, rows_, layer.attention_norm, config_.rms_eps, normed_.data(), pool_);
  return normed_.data();
}

const float* LayerStages::attention_output(const Layer& layer, float* keys, float* values,
                                           std::int64_t window) {
  const std::int64_t dim = config_.head_dim, q_size = config_.heads * dim, kv_size = config_.kv_heads * dim;
  float* new_keys = keys + first_ * kv_size;
  SharedInput read = input(normed_.data(), config_.hidden);
  multiply(layer.q, read, q_.data());
  multiply(layer.k, read, new_keys);
  multiply(layer.v, read, values + first_ * kv_size);
  if (layer.q_norm.size())
    norm(q_.data(), rows_ * config_.heads, layer.q_norm, config_.rms_eps, q_.data(), pool_);
  if (layer.k_norm.size())
    norm(new_keys, rows_ * config_.kv_heads, layer.k_norm, config_.rms_eps, new_keys, pool_);
  const auto turn = [&](float* x, std::int64_t heads) {
    rope({.rows = rows_, .heads = heads, .first_position = first_, .x = x, .x_stride = heads * dim}, rope_,
         pool_);
  };
  turn(q_.data(), config_.heads);
  turn(new_keys, config_.kv_heads);
  attention({.rows = rows_,
             .first_position = first_,
             .heads = config_.heads,
             .kv_heads = config_.kv_heads,
             .head_dim = dim,
             .window = window,
             .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
             .q = q_.data(),
             .q_stride = q_size,
             .k = keys,
             .v = values,
             .out = attended_.data()},
            pool_);
  return attended_.data();
}

void LayerStages::add_attention(const Layer& layer, const float* attended, float* x) {
  SharedInput read = input(attended, config_.heads * config_.head_dim);
  multiply(layer.o, read, added_.data());
  add(x, added_.data(), added_.size());
}

const float* LayerStages::mlp_input(const Layer& layer, const float* x) {
  norm(x, rows_, layer.mlp_norm, config_.rms_eps, normed_.data(), pool_);
  return normed_.data();
}

const float* LayerStages::mlp_product(const Layer& layer) {
  SharedInput read = input(normed_.data(), config_.hidden);
  multiply(layer.gate, read, gate_.data());
  multiply(layer.up, read, up_.data());
  silu_mul(gate_.data(), up_.data(), gate_.data(), gate_.size(), pool_);
  return gate_.data();
}

void LayerStages::add_mlp(const Layer& layer, const float* product, float* x) {
  SharedInput read = input(product, config_.intermediate);
  multiply(layer.down, read, added_.data());
  add(x, added_.data(), added_.size());
}

}  // namespace halfbyte
