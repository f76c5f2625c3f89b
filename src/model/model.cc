#include "model/model.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "ops/matmul_f32/op.h"
#include "ops/rms_norm/op.h"

namespace halfbyte {

void Model::forward(std::span<const std::int32_t> ids, KvCache& cache, float* hidden, ThreadPool& pool) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  const std::int64_t first = cache.length(), size = config_.hidden;
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

  const auto observe = [&](LinearInput input, std::int64_t layer, const float* values, std::int64_t columns) {
    if (observer_) observer_(input, layer, values, rows, columns);
  };
  LayerStages stages(config_, *rope_, rows, first, clipping_, pool);
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const Layer& layer = layers_[index];
    observe(LinearInput::attention, i, stages.attention_input(layer, x.data()), size);
    const float* attended =
        stages.attention_output(layer, cache.keys(i), cache.values(i), config_.windows[index]);
    observe(LinearInput::attention_output, i, attended, config_.heads * config_.head_dim);
    stages.add_attention(layer, attended, x.data());
    observe(LinearInput::mlp, i, stages.mlp_input(layer, x.data()), size);
    const float* product = stages.mlp_product(layer);
    observe(LinearInput::mlp_product, i, product, config_.intermediate);
    stages.add_mlp(layer, product, x.data());
  }
  cache.advance(rows);
  rms_norm({.rows = rows,
            .columns = size,
            .x = x.data(),
            .x_stride = size,
            .weight = final_norm_.data(),
            .eps = static_cast<float>(config_.rms_eps),
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
  SharedInput input(hidden, rows, config_.hidden, scratch, clipping_, pool);
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
