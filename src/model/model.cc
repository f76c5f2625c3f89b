#include "model/model.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/fail.h"
#include "model/engine_input.h"
#include "ops/attention/op.h"
#include "ops/matmul_f32/op.h"
#include "ops/rms_norm/op.h"
#include "ops/silu_mul/op.h"

namespace halfbyte {

namespace {

// Buffers that all inputs of a pass use in turn.
struct InputScratch {
  Array<float> changed, rounded;
};

// The input of one or more linears, transformed and quantized the way each of them asks for; equal wishes share one result.
class QuantizedInput {
 public:
  QuantizedInput(const float* x, std::int64_t rows, std::int64_t columns, InputScratch& scratch,
                 ClippingCounts& counts, ThreadPool& pool)
      : x_(x),
        rows_(rows),
        unchanged_(unchanged_input(columns)),
        scratch_(scratch),
        counts_(counts),
        pool_(pool) {}

  // [rows, linear.in] as linear's engine would see it.
  const float* for_linear(const Linear& linear) {
    if (!linear.activations && !linear.transform) return x_;
    if (!current_ || activations_ != linear.activations || transform_ != linear.transform.get()) {
      activations_ = linear.activations;
      transform_ = linear.transform.get();
      current_ = make();
    }
    return current_;
  }

 private:
  const float* make() {
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
  void count_clipped(const float* changed, const InputInfo& info) {
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

  const float* x_;
  std::int64_t rows_;
  InputTransform unchanged_;  // for linears without a method
  InputScratch& scratch_;
  ClippingCounts& counts_;
  ThreadPool& pool_;
  const float* current_ = nullptr;  // what these two make of x
  std::optional<ActivationSpec> activations_;
  const LinearTransform* transform_ = nullptr;
};

void apply(const Linear& linear, QuantizedInput& input, std::int64_t rows, float* out, ThreadPool& pool) {
  matmul_f32({.m = rows,
              .n = linear.out,
              .k = linear.in,
              .activation = input.for_linear(linear),
              .activation_stride = linear.in,
              .weight = linear.weight.data(),
              .weight_stride = linear.in,
              .bias = linear.bias.size() ? linear.bias.data() : nullptr,
              .out = out,
              .out_stride = linear.out},
             pool);
}

void norm_heads(float* x, std::int64_t rows, std::int64_t heads, const Array<float>& weight, float eps,
                ThreadPool& pool) {
  if (weight.size() == 0) return;
  const std::int64_t dim = weight.size();
  rms_norm({.rows = rows * heads,
            .columns = dim,
            .x = x,
            .x_stride = dim,
            .weight = weight.data(),
            .eps = eps,
            .out = x,
            .out_stride = dim},
           pool);
}

void add(float* x, const float* y, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) x[i] += y[i];
}

}  // namespace

void Model::forward(std::span<const std::int32_t> ids, KvCache& cache, float* hidden, ThreadPool& pool) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  const std::int64_t first = cache.length(), size = config_.hidden;
  const std::int64_t q_size = config_.heads * config_.head_dim, kv_size = config_.kv_heads * config_.head_dim;
  if (rows == 0) return;
  if (first + rows > cache.capacity())
    fail_input("{} tokens do not fit a cache of {} positions of which {} are taken", rows, cache.capacity(),
               first);
  rope_->reserve(first + rows);

  Array<float> x(rows * size);  // the residual stream
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int32_t id = ids[static_cast<std::size_t>(r)];
    if (id < 0 || id >= config_.vocab)
      fail_input("token id {} is outside the vocabulary of {}", id, config_.vocab);
    std::copy_n(embedding_.data() + id * size, size, x.data() + r * size);
  }

  const auto eps = static_cast<float>(config_.rms_eps);
  const auto observe = [&](LinearInput input, std::int64_t layer, const float* values, std::int64_t columns) {
    if (observer_) observer_(input, layer, values, rows, columns);
  };
  Array<float> normed(rows * size), q(rows * q_size), attended(rows * q_size), added(rows * size);
  Array<float> gate(rows * config_.intermediate), up(rows * config_.intermediate);
  InputScratch scratch;
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    float* keys = cache.keys(i) + first * kv_size;
    float* values = cache.values(i) + first * kv_size;

    rms_norm({.rows = rows,
              .columns = size,
              .x = x.data(),
              .x_stride = size,
              .weight = layer.attention_norm.data(),
              .eps = eps,
              .out = normed.data(),
              .out_stride = size},
             pool);
    observe(LinearInput::attention, i, normed.data(), size);
    QuantizedInput attention_input(normed.data(), rows, size, scratch, clipping_, pool);
    apply(layer.q, attention_input, rows, q.data(), pool);
    apply(layer.k, attention_input, rows, keys, pool);
    apply(layer.v, attention_input, rows, values, pool);
    norm_heads(q.data(), rows, config_.heads, layer.q_norm, eps, pool);
    norm_heads(keys, rows, config_.kv_heads, layer.k_norm, eps, pool);
    rope({.rows = rows, .heads = config_.heads, .first_position = first, .x = q.data(), .x_stride = q_size},
         *rope_, pool);
    rope({.rows = rows, .heads = config_.kv_heads, .first_position = first, .x = keys, .x_stride = kv_size},
         *rope_, pool);
    attention({.rows = rows,
               .first_position = first,
               .heads = config_.heads,
               .kv_heads = config_.kv_heads,
               .head_dim = config_.head_dim,
               .window = config_.windows[static_cast<std::size_t>(i)],
               .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
               .q = q.data(),
               .q_stride = q_size,
               .k = cache.keys(i),
               .v = cache.values(i),
               .out = attended.data()},
              pool);
    observe(LinearInput::attention_output, i, attended.data(), q_size);
    QuantizedInput output_input(attended.data(), rows, q_size, scratch, clipping_, pool);
    apply(layer.o, output_input, rows, added.data(), pool);
    add(x.data(), added.data(), rows * size);

    rms_norm({.rows = rows,
              .columns = size,
              .x = x.data(),
              .x_stride = size,
              .weight = layer.mlp_norm.data(),
              .eps = eps,
              .out = normed.data(),
              .out_stride = size},
             pool);
    observe(LinearInput::mlp, i, normed.data(), size);
    QuantizedInput mlp_input(normed.data(), rows, size, scratch, clipping_, pool);
    apply(layer.gate, mlp_input, rows, gate.data(), pool);
    apply(layer.up, mlp_input, rows, up.data(), pool);
    silu_mul(gate.data(), up.data(), gate.data(), rows * config_.intermediate, pool);
    observe(LinearInput::mlp_product, i, gate.data(), config_.intermediate);
    QuantizedInput product_input(gate.data(), rows, config_.intermediate, scratch, clipping_, pool);
    apply(layer.down, product_input, rows, added.data(), pool);
    add(x.data(), added.data(), rows * size);
  }
  cache.advance(rows);
  rms_norm({.rows = rows,
            .columns = size,
            .x = x.data(),
            .x_stride = size,
            .weight = final_norm_.data(),
            .eps = eps,
            .out = hidden,
            .out_stride = size},
           pool);
  observe(LinearInput::head, -1, hidden, size);
}

void Model::logits(const float* hidden, std::int64_t rows, float* logits, ThreadPool& pool) {
  if (!std::all_of(hidden, hidden + rows * config_.hidden, [](float value) { return std::isfinite(value); }))
    fail_input(
        "the model computes NaN or infinite values for this input; its weights are damaged or out of range");
  const bool own = head_.weight.size() > 0;
  InputScratch scratch;
  QuantizedInput input(hidden, rows, config_.hidden, scratch, clipping_, pool);
  matmul_f32({.m = rows,
              .n = config_.vocab,
              .k = own ? head_.in : config_.hidden,
              .activation = own ? input.for_linear(head_) : hidden,
              .activation_stride = own ? head_.in : config_.hidden,
              .weight = own ? head_.weight.data() : embedding_.data(),
              .weight_stride = own ? head_.in : config_.hidden,
              .out = logits,
              .out_stride = config_.vocab},
             pool);
}

}  // namespace halfbyte
