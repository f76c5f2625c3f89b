// The forward pass on a CUDA device: the stages of model/layer.h as launches on one stream.
#include "gpu/cuda_session.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "ops/attention/cuda.h"
#include "ops/embedding/cuda.h"
#include "ops/fake_quantize/cuda.h"
#include "ops/narrow/cuda.h"
#include "ops/rms_norm/cuda.h"
#include "ops/row_math/cuda.h"
#include "ops/silu_mul/cuda.h"

namespace halfbyte::cuda {

namespace {

// True where it was too small and is another one now, not filled.
template <typename T>
bool grow(Buffer<T>& buffer, std::int64_t size) {
  if (buffer.size() >= size) return false;
  buffer = Buffer<T>(size);
  return true;
}

// FP16 where that is all that its readers want.
DType wanted_by(std::span<const DeviceLinear> readers) {
  return std::ranges::all_of(readers, [](const DeviceLinear& linear) { return linear.takes_f16(); })
             ? DType::f16
             : DType::f32;
}

}  // namespace

CudaSession::CudaSession(const CudaModel& model, const CudaOptions& options, std::int64_t capacity,
                         InputCounts& counts)
    : model_(model), options_(options), counts_(counts), capacity_(capacity) {
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
  step_vocab_ = c.vocab;
  attention_workspace_ = Buffer<std::uint8_t>(attention_workspace(c.heads, c.kv_heads, c.head_dim, capacity));
  attention_workspace_.fill(0);
}

void CudaSession::reserve(std::int64_t rows) {
  if (rows <= reserved_) return;
  graph_.reset();  // it knows the old memory
  reserved_ = rows;
  const ModelConfig& c = config();
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  grow(ids_, rows);
  for (Buffer<float>* buffer : {&x_, &normed_, &added_}) grow(*buffer, rows * c.hidden);
  for (Buffer<float>* buffer : {&turned_, &attended_}) grow(*buffer, rows * q);
  grow(projected_, rows * std::max(q + 2 * kv, 2 * c.intermediate));
  grow(product_, rows * c.intermediate);
  input_ = InputScratch(rows, model_.widest);
  if (options_.arithmetic == CudaArithmetic::f32) return;
  grow(narrow_, rows * model_.widest);
  grow(narrow_out_, rows * model_.tallest);
  std::int64_t workspace = model_.head.weight.workspace(rows);
  model_.for_each_linear(
      [&](const DeviceLinear& linear) { workspace = std::max(workspace, linear.weight.workspace(rows)); });
  if (grow(workspace_, workspace)) workspace_.fill(0);
}

void CudaSession::upload(const void* host, std::size_t bytes, void* device) {
  check_status(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
               "copying between host and device");
}

void CudaSession::norm(std::int64_t rows, const Values& addend, const Buffer<float>& weight,
                       MutableValues out) {
  check_status(add_norm({.rows = rows,
                         .columns = weight.size(),
                         .x = x_.data(),
                         .addend = addend,
                         .weight = weight.data(),
                         .eps = static_cast<float>(config().rms_eps),
                         .out = out},
                        stream_),
               "launching add_norm");
}

CudaSession::Product CudaSession::multiply(std::span<const DeviceLinear> linears, const Values& x,
                                           std::int64_t rows, float* out, ProductType type) {
  Product product;
  DeviceInput input(x, rows,
                    linears[0].transform ? linears[0].transform->host->input.info.channels : linears[0].in,
                    input_, counts_, stream_);
  for (const DeviceLinear& linear : linears) {
    const LinearValues read = input.for_linear(linear);
    Values values{out, DType::f32};
    if (linear.weight.is_packed()) {
      values = multiply_f16(linear, read, rows, out, type);
    } else {
      const float* bias = linear.bias.size() ? linear.bias.data() : nullptr;
      linear.weight.multiply(read.values, rows, linear.in, bias, false, weight_.data(), out, stream_);
      if (!linear.outliers.empty())
        linear.outliers.multiply(read.values.from(linear.weight.columns()), rows, linear.in, nullptr, true,
                                 weight_.data(), out, stream_);
    }
    std::int64_t first = 0;
    for (const std::int64_t part : linear.parts) {
      product.push_back({values.from(first), linear.out});
      first += part;
    }
    out += rows * linear.out;
  }
  return product;
}

// Packed weights, perhaps with outliers that are plain. The product is FP16 in the memory of out where any type will do and nothing
// is left to do with it, else float32.
Values CudaSession::multiply_f16(const DeviceLinear& linear, const LinearValues& x, std::int64_t rows,
                                 float* out, ProductType type) {
  const StoredWeight& weight = linear.weight;
  // Level times block scale is a multiple of 2^-10 up to 2688: a 256th of it is exact too, and leaves room for the sum.
  constexpr float kRoom = 256.0f;
  const RowScale off{.scale = x.global_scale,
                     .inverse = !x.divides,
                     .of_rows = x.of_rows,
                     .also = x.global_scale ? 1.0f / kRoom : 1.0f};
  const void* read = x.values.data;
  if (x.values.dtype != DType::f16) {
    check_status(to_fp16({.rows = rows,
                          .columns = weight.columns(),
                          .x = x.values,
                          .x_stride = linear.in,
                          .scale = off,
                          .out = narrow_.data()},
                         stream_),
                 "launching to_fp16");
    read = narrow_.data();
  }
  if (type == ProductType::any && !x.global_scale && linear.outliers.empty()) {
    const void* bias = linear.bias_f16.size() ? linear.bias_f16.data() : nullptr;
    weight.multiply_f16(read, rows, bias, workspace_.data(), out, stream_);
    return {out, DType::f16};
  }
  weight.multiply_f16(read, rows, nullptr, workspace_.data(), narrow_out_.data(), stream_);
  check_status(from_fp16({.rows = rows,
                          .columns = linear.out,
                          .x = narrow_out_.data(),
                          .scale = {.scale = off.scale,
                                    .inverse = !off.inverse,
                                    .of_rows = off.of_rows,
                                    .also = 1.0f / off.also},
                          .bias = linear.bias.size() ? linear.bias.data() : nullptr,
                          .out = out},
                         stream_),
               "launching from_fp16");
  if (!linear.outliers.empty())
    linear.outliers.multiply(x.values.from(weight.columns()), rows, linear.in, nullptr, true, weight_.data(),
                             out, stream_);
  return {out, DType::f32};
}

void CudaSession::run_attention(const DeviceLayer& layer, std::size_t index, std::int64_t rows) {
  const ModelConfig& c = config();
  const std::int64_t dim = c.head_dim;
  const Product qkv =
      multiply(layer.attention, {normed_.data(), wanted_by(layer.attention)}, rows, projected_.data());
  const RopeAppend rope{.rows = rows,
                        .heads = c.heads,
                        .kv_heads = c.kv_heads,
                        .half = dim / 2,
                        .first_position = id_position_.data() + 1,
                        .cosines = cosines_.data(),
                        .sines = sines_.data(),
                        .q = qkv[0],
                        .k = qkv[1],
                        .v = qkv[2],
                        .q_norm = layer.q_norm.data(),
                        .k_norm = layer.k_norm.data(),
                        .eps = static_cast<float>(c.rms_eps),
                        .turned = turned_.data(),
                        .keys = keys_[index].data(),
                        .values = values_[index].data()};
  check_status(rope_attention(rope,
                              {.rows = rows,
                               .first_position = rope.first_position,
                               .heads = c.heads,
                               .kv_heads = c.kv_heads,
                               .head_dim = dim,
                               .window = c.windows[index],
                               .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
                               .q = turned_.data(),
                               .keys = rope.keys,
                               .values = rope.values,
                               .out = {attended_.data(), wanted_by({&layer.o, 1})},
                               .capacity = capacity_,
                               .workspace = attention_workspace_.data()},
                              stream_),
               "launching attention");
}

// addend: what the layer before has left to add to the residual stream; the same is returned.
Values CudaSession::run_layer(const DeviceLayer& layer, std::size_t index, std::int64_t rows,
                              const Values& addend) {
  const ModelConfig& c = config();
  norm(rows, addend, layer.attention_norm, {normed_.data(), wanted_by(layer.attention)});
  run_attention(layer, index, rows);
  const Product attended =
      multiply({&layer.o, 1}, {attended_.data(), wanted_by({&layer.o, 1})}, rows, added_.data());
  const DType mlp_type = wanted_by(layer.mlp), down_type = wanted_by({&layer.down, 1});
  norm(rows, attended[0].values, layer.mlp_norm, {normed_.data(), mlp_type});
  const Product gate_up = multiply(layer.mlp, {normed_.data(), mlp_type}, rows, projected_.data());
  check_status(cuda::silu_mul({.rows = rows,
                               .columns = c.intermediate,
                               .gate = gate_up[0].values,
                               .up = gate_up[1].values,
                               .stride = gate_up[0].stride,
                               .out = {product_.data(), down_type}},
                              stream_),
               "launching silu_mul");
  return multiply({&layer.down, 1}, {product_.data(), down_type}, rows, added_.data())[0].values;
}

// All layers on ids and position that lie on the device; normed_ is then what the head reads.
void CudaSession::run(const std::int32_t* ids, std::int64_t rows) {
  const ModelConfig& c = config();
  check_status(gather_rows({.rows = rows,
                            .columns = c.hidden,
                            .ids = ids,
                            .dtype = model_.embedding.dtype(),
                            .table = model_.embedding.data(),
                            .out = x_.data()},
                           stream_),
               "launching gather_rows");
  Values addend;
  for (std::size_t i = 0; i < model_.layers.size(); ++i)
    addend = run_layer(model_.layers[i], i, rows, addend);
  norm(rows, addend, model_.final_norm, {normed_.data(), DType::f32});
  check_status(
      find_not_finite(normed_.data(), DType::f32, rows * c.hidden, counts_.not_finite.data(), stream_),
      "launching find_not_finite");
}

void CudaSession::launch_logits(std::int64_t first, std::int64_t rows) {
  const ModelConfig& c = config();
  const Values hidden{normed_.data() + first * c.hidden, DType::f32};
  if (model_.head.weight.empty())
    model_.embedding.multiply(hidden, rows, c.hidden, nullptr, false, nullptr, logits_.data(), stream_);
  else
    multiply({&model_.head, 1}, hidden, rows, logits_.data(), ProductType::f32);
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
  stream_.wait();  // nobody reads step_ any more
  step_->position = static_cast<std::int32_t>(length_);
  length_ += rows;
  stepped_ = rows == 1;
  if (stepped_) {
    step_->id = ids[0];
    if (grow(logits_, c.vocab)) graph_.reset();
    if (graph_) {
      graph_.launch(stream_);
      counts_.values += graph_values_;
      return;
    }
    const std::int64_t before = counts_.values;
    run_step();  // also where a graph follows: what is loaded at a first launch cannot be captured
    graph_values_ = counts_.values - before;
    if (!options_.graph) return;
    stream_.wait();
    graph_.capture(stream_, [&] { run_step(); });
    counts_.values = before + graph_values_;
    return;
  }
  upload(ids.data(), ids.size_bytes(), ids_.data());
  upload(&step_->id, 2 * sizeof(std::int32_t), id_position_.data());
  run(ids_.data(), rows);
}

// A pass of one token, with the copies before and after it.
void CudaSession::run_step() {
  const auto fetch = [&](void* to, const void* from, std::size_t bytes) {
    check_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
                 "copying between host and device");
  };
  upload(&step_->id, 2 * sizeof(std::int32_t), id_position_.data());
  run(id_position_.data(), 1);
  launch_logits(0, 1);
  check_status(cudaMemsetAsync(largest_.data(), 0, largest_.bytes(), stream_), "filling device memory");
  check_status(find_largest(logits_.data(), step_vocab_, largest_.data(), stream_), "launching find_largest");
  fetch(&step_->largest, largest_.data(), sizeof step_->largest);
  fetch(&step_->not_finite, counts_.not_finite.data(), sizeof step_->not_finite);
}

void CudaSession::make_logits(std::int64_t first, std::int64_t rows) {
  logit_rows_ = rows;
  if (!stepped_) {
    if (grow(logits_, rows * config().vocab)) graph_.reset();
    launch_logits(first, rows);
  }
  stream_.wait();
  refuse(stepped_ ? step_->not_finite != 0 : counts_.not_finite.download()[0] != 0);
}

void CudaSession::refuse(bool not_finite) {
  if (!not_finite) return;
  counts_.not_finite.fill(0);
  fail_input(
      "the model computes NaN or infinite values for this input; its weights are damaged or out of range{}",
      options_.arithmetic == CudaArithmetic::f16
          ? ", or out of that of FP16: --arithmetic f32 has a wider one"
          : "");
}

void CudaSession::copy_logits(std::span<float> out) {
  check_status(cudaMemcpy(out.data(), logits_.data(), out.size_bytes(), cudaMemcpyDeviceToHost),
               "copying between host and device");
}

std::int32_t CudaSession::most_likely(std::int64_t vocab) {
  if (stepped_ && vocab == step_vocab_) return index_of_largest(step_->largest);
  step_vocab_ = vocab;  // as the next steps will be asked
  graph_.reset();
  largest_.fill(0);
  check_status(find_largest(logits_.data(), vocab, largest_.data(), stream_), "launching find_largest");
  stream_.wait();
  return index_of_largest(largest_.download()[0]);
}

void CudaSession::score(std::span<const std::int32_t> targets, const Session* reference,
                        std::span<TokenScore> scores) {
  const auto* other = dynamic_cast<const CudaSession*>(reference);
  if (reference && !other) fail_input("the reference model lies on another device than the model");
  grow(targets_, logit_rows_);
  grow(scores_, logit_rows_);
  upload(targets.data(), targets.size_bytes(), targets_.data());
  check_status(score_rows({.rows = logit_rows_,
                           .vocab = config().vocab,
                           .logits = logits_.data(),
                           .reference = other ? other->logits_.data() : nullptr,
                           .targets = targets_.data(),
                           .scores = scores_.data()},
                          stream_),
               "launching score_rows");
  stream_.wait();
  check_status(cudaMemcpy(scores.data(), scores_.data(), scores.size_bytes(), cudaMemcpyDeviceToHost),
               "copying between host and device");
}

}  // namespace halfbyte::cuda
