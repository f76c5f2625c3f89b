// The forward pass on a CUDA device: the stages of model/layer.h as launches on one stream.
#include "gpu/cuda_session.h"

#include <cmath>

#include "core/fail.h"
#include "ops/attention/cuda.h"
#include "ops/embedding/cuda.h"
#include "ops/fake_quantize/cuda.h"
#include "ops/rms_norm/cuda.h"
#include "ops/rope/cuda.h"
#include "ops/row_math/cuda.h"
#include "ops/silu_mul/cuda.h"

namespace halfbyte::cuda {

namespace {

template <typename T>
void grow(Buffer<T>& buffer, std::int64_t size) {
  if (buffer.size() < size) buffer = Buffer<T>(size);
}

template <typename T>
void upload(std::span<const T> host, Buffer<T>& to) {
  check_status(cudaMemcpy(to.data(), host.data(), host.size_bytes(), cudaMemcpyHostToDevice),
               "copying between host and device");
}

}  // namespace

CudaSession::CudaSession(const CudaModel& model, std::int64_t capacity, InputCounts& counts)
    : model_(model), counts_(counts), capacity_(capacity) {
  const ModelConfig& c = config();
  RopeTable rope(rope_inverse_frequencies(c.rope, c.head_dim));
  rope.reserve(capacity);
  const auto size = static_cast<std::size_t>(capacity * rope.half());
  cosines_ = Buffer<float>(std::span<const float>(rope.cosines(0), size));
  sines_ = Buffer<float>(std::span<const float>(rope.sines(0), size));
  for (std::int64_t i = 0; i < c.layers; ++i) {
    keys_.emplace_back(capacity * c.kv_heads * c.head_dim);
    values_.emplace_back(capacity * c.kv_heads * c.head_dim);
  }
  weight_ = Buffer<float>(model.most_scratch);
}

void CudaSession::reserve(std::int64_t rows) {
  if (rows <= reserved_) return;
  reserved_ = rows;
  const ModelConfig& c = config();
  grow(ids_, rows);
  for (Buffer<float>* buffer : {&x_, &normed_, &added_}) grow(*buffer, rows * c.hidden);
  for (Buffer<float>* buffer : {&q_, &attended_}) grow(*buffer, rows * c.heads * c.head_dim);
  for (Buffer<float>* buffer : {&k_, &v_}) grow(*buffer, rows * c.kv_heads * c.head_dim);
  for (Buffer<float>* buffer : {&gate_, &up_}) grow(*buffer, rows * c.intermediate);
  input_ = InputScratch(rows, model_.widest);
}

DeviceInput CudaSession::input(const float* x, std::int64_t rows, std::int64_t columns) {
  return {x, rows, columns, input_, counts_, stream_};
}

void CudaSession::norm(const float* x, std::int64_t rows, const Buffer<float>& weight, float* out) {
  const std::int64_t columns = weight.size();
  check_status(cuda::rms_norm({.rows = rows,
                               .columns = columns,
                               .x = x,
                               .x_stride = columns,
                               .weight = weight.data(),
                               .eps = static_cast<float>(config().rms_eps),
                               .out = out,
                               .out_stride = columns},
                              stream_),
               "launching rms_norm");
}

void CudaSession::multiply(const DeviceLinear& linear, DeviceInput& input, std::int64_t rows, float* out) {
  const float* x = input.for_linear(linear);
  const float* bias = linear.bias.size() ? linear.bias.data() : nullptr;
  linear.weight.multiply(x, rows, linear.in, bias, false, weight_.data(), out, stream_);
  if (!linear.outliers.empty())
    linear.outliers.multiply(x + linear.weight.columns(), rows, linear.in, nullptr, true, weight_.data(), out,
                             stream_);
}

void CudaSession::run_layer(const DeviceLayer& layer, std::size_t index, std::int64_t rows) {
  const ModelConfig& c = config();
  const std::int64_t dim = c.head_dim;
  norm(x_.data(), rows, layer.attention_norm, normed_.data());
  DeviceInput attention_input = input(normed_.data(), rows, c.hidden);
  multiply(layer.q, attention_input, rows, q_.data());
  multiply(layer.k, attention_input, rows, k_.data());
  multiply(layer.v, attention_input, rows, v_.data());
  if (layer.q_norm.size()) norm(q_.data(), rows * c.heads, layer.q_norm, q_.data());
  if (layer.k_norm.size()) norm(k_.data(), rows * c.kv_heads, layer.k_norm, k_.data());
  check_status(rope_append({.rows = rows,
                            .heads = c.heads,
                            .kv_heads = c.kv_heads,
                            .half = dim / 2,
                            .first_position = position_.data(),
                            .cosines = cosines_.data(),
                            .sines = sines_.data(),
                            .q = q_.data(),
                            .k = k_.data(),
                            .v = v_.data(),
                            .keys = keys_[index].data(),
                            .values = values_[index].data()},
                           stream_),
               "launching rope_append");
  check_status(cuda::attention({.rows = rows,
                                .first_position = position_.data(),
                                .heads = c.heads,
                                .kv_heads = c.kv_heads,
                                .head_dim = dim,
                                .window = c.windows[index],
                                .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
                                .q = q_.data(),
                                .keys = keys_[index].data(),
                                .values = values_[index].data(),
                                .out = attended_.data()},
                               stream_),
               "launching attention");
  DeviceInput output_input = input(attended_.data(), rows, c.heads * dim);
  multiply(layer.o, output_input, rows, added_.data());
  check_status(add(x_.data(), added_.data(), rows * c.hidden, stream_), "launching add");

  norm(x_.data(), rows, layer.mlp_norm, normed_.data());
  DeviceInput mlp_input = input(normed_.data(), rows, c.hidden);
  multiply(layer.gate, mlp_input, rows, gate_.data());
  multiply(layer.up, mlp_input, rows, up_.data());
  check_status(cuda::silu_mul(gate_.data(), up_.data(), gate_.data(), rows * c.intermediate, stream_),
               "launching silu_mul");
  DeviceInput product_input = input(gate_.data(), rows, c.intermediate);
  multiply(layer.down, product_input, rows, added_.data());
  check_status(add(x_.data(), added_.data(), rows * c.hidden, stream_), "launching add");
}

void CudaSession::forward(std::span<const std::int32_t> ids) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  if (rows == 0) return;
  const ModelConfig& c = config();
  if (length_ + rows > capacity_)
    fail_input("{} tokens do not fit a cache of {} positions of which {} are taken", rows, capacity_,
               length_);
  for (const std::int32_t id : ids)
    if (id < 0 || id >= c.vocab) fail_input("token id {} is outside the vocabulary of {}", id, c.vocab);
  reserve(rows);
  upload(ids, ids_);
  const auto first = static_cast<std::int32_t>(length_);
  upload(std::span<const std::int32_t>(&first, 1), position_);
  check_status(gather_rows({.rows = rows,
                            .columns = c.hidden,
                            .ids = ids_.data(),
                            .dtype = model_.embedding.dtype(),
                            .table = model_.embedding.data(),
                            .out = x_.data()},
                           stream_),
               "launching gather_rows");
  for (std::size_t i = 0; i < model_.layers.size(); ++i) run_layer(model_.layers[i], i, rows);
  length_ += rows;
  norm(x_.data(), rows, model_.final_norm, normed_.data());
  check_status(
      find_not_finite(normed_.data(), DType::f32, rows * c.hidden, counts_.not_finite.data(), stream_),
      "launching find_not_finite");
}

void CudaSession::make_logits(std::int64_t first, std::int64_t rows) {
  const ModelConfig& c = config();
  logit_rows_ = rows;
  grow(logits_, rows * c.vocab);
  const float* hidden = normed_.data() + first * c.hidden;
  if (model_.head.weight.empty()) {
    model_.embedding.multiply(hidden, rows, c.hidden, nullptr, false, nullptr, logits_.data(), stream_);
  } else {
    DeviceInput head_input = input(hidden, rows, c.hidden);
    multiply(model_.head, head_input, rows, logits_.data());
  }
  refuse_not_finite();
}

// Waits for the stream.
void CudaSession::refuse_not_finite() {
  if (counts_.not_finite.download()[0] == 0) return;
  counts_.not_finite.fill(0);
  fail_input(
      "the model computes NaN or infinite values for this input; its weights are damaged or out of range");
}

void CudaSession::copy_logits(std::span<float> out) {
  check_status(cudaMemcpy(out.data(), logits_.data(), out.size_bytes(), cudaMemcpyDeviceToHost),
               "copying between host and device");
}

void CudaSession::score(std::span<const std::int32_t> targets, const Session* reference,
                        std::span<TokenScore> scores) {
  const auto* other = dynamic_cast<const CudaSession*>(reference);
  if (reference && !other) fail_input("the reference model lies on another device than the model");
  grow(targets_, logit_rows_);
  grow(scores_, logit_rows_);
  upload(targets, targets_);
  check_status(score_rows({.rows = logit_rows_,
                           .vocab = config().vocab,
                           .logits = logits_.data(),
                           .reference = other ? other->logits_.data() : nullptr,
                           .targets = targets_.data(),
                           .scores = scores_.data()},
                          stream_),
               "launching score_rows");
  check_status(cudaMemcpy(scores.data(), scores_.data(), scores.size_bytes(), cudaMemcpyDeviceToHost),
               "copying between host and device");
}

}  // namespace halfbyte::cuda
