// A CUDA model at work on one text after another.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/cuda_model.h"
#include "gpu/device_input.h"
#include "model/session.h"

namespace halfbyte::cuda {

class CudaSession final : public Session {
 public:
  // The model must outlive the session. Counts are shared by all sessions of a model.
  CudaSession(const CudaModel& model, std::int64_t capacity, InputCounts& counts);

  const ModelConfig& config() const override { return model_.config; }
  void clear() override { length_ = 0; }
  void forward(std::span<const std::int32_t> ids) override;
  void make_logits(std::int64_t first, std::int64_t rows) override;
  void copy_logits(std::span<float> out) override;
  void score(std::span<const std::int32_t> targets, const Session* reference,
             std::span<TokenScore> scores) override;

 private:
  void reserve(std::int64_t rows);
  void run_layer(const DeviceLayer& layer, std::size_t index, std::int64_t rows);
  void norm(const float* x, std::int64_t rows, const Buffer<float>& weight, float* out);
  void multiply(const DeviceLinear& linear, DeviceInput& input, std::int64_t rows, float* out);
  DeviceInput input(const float* x, std::int64_t rows, std::int64_t columns);
  void refuse_not_finite();

  const CudaModel& model_;
  InputCounts& counts_;
  Stream stream_ = nullptr;
  std::int64_t capacity_, length_ = 0;        // positions there are, positions filled
  Buffer<float> cosines_, sines_;             // [capacity, head_dim / 2]
  std::vector<Buffer<float>> keys_, values_;  // of each layer: [capacity, kv_heads, head_dim]
  Buffer<std::int32_t> position_{1};          // of the pass's first row

  // Of one pass, for reserved_ rows.
  std::int64_t reserved_ = 0;
  Buffer<std::int32_t> ids_;
  Buffer<float> x_, normed_, q_, k_, v_, attended_, added_, gate_, up_;
  InputScratch input_;
  Buffer<float> weight_;  // scratch of StoredWeight

  std::int64_t logit_rows_ = 0;
  Buffer<float> logits_;  // [logit_rows_, vocab]
  Buffer<std::int32_t> targets_;
  Buffer<TokenScore> scores_;
};

}  // namespace halfbyte::cuda
