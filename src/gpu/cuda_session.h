// A CUDA model at work on one text after another.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/cuda_model.h"
#include "gpu/decode_graph.h"
#include "gpu/device_input.h"
#include "model/session.h"
#include "ops/rope/cuda.h"

namespace halfbyte::cuda {

class CudaSession final : public Session {
 public:
  // The model must outlive the session. Counts are shared by all sessions of a model.
  CudaSession(const CudaModel& model, const CudaOptions& options, std::int64_t capacity, InputCounts& counts);

  const ModelConfig& config() const override { return model_.config; }
  void clear() override { length_ = 0; }
  void forward(std::span<const std::int32_t> ids) override;
  void make_logits(std::int64_t first, std::int64_t rows) override;
  void copy_logits(std::span<float> out) override;
  std::int32_t most_likely(std::int64_t vocab) override;
  void score(std::span<const std::int32_t> targets, const Session* reference,
             std::span<TokenScore> scores) override;

 private:
  // What a product put where its scratch memory was.
  using Product = std::vector<StridedRows>;  // of each part of the linears
  enum class ProductType : std::uint8_t { any, f32 };

  void reserve(std::int64_t rows);
  void run(const std::int32_t* ids, std::int64_t rows);
  void run_step();
  Values run_layer(const DeviceLayer& layer, std::size_t index, std::int64_t rows, const Values& addend);
  void run_attention(const DeviceLayer& layer, std::size_t index, std::int64_t rows);
  void launch_logits(std::int64_t first, std::int64_t rows);
  void norm(std::int64_t rows, const Values& addend, const Buffer<float>& weight, MutableValues out);
  Product multiply(std::span<const DeviceLinear> linears, const Values& x, std::int64_t rows, float* out,
                   ProductType type = ProductType::any);
  Values multiply_f16(const DeviceLinear& linear, const LinearValues& x, std::int64_t rows, float* out,
                      ProductType type);
  void upload(const void* host, std::size_t bytes, void* device);
  void refuse(bool not_finite);

  const CudaModel& model_;
  const CudaOptions options_;
  InputCounts& counts_;
  OwnStream stream_;
  std::int64_t capacity_, length_ = 0;        // positions there are, positions filled
  Buffer<float> cosines_, sines_;             // [capacity, head_dim / 2]
  std::vector<Buffer<float>> keys_, values_;  // of each layer: [capacity, kv_heads, head_dim]

  // What goes to and from a pass of one token; of other passes the position alone.
  struct Step {
    std::int32_t id, position;
    unsigned long long largest;  // find_largest() of the first step_vocab_ logits
    int not_finite;
  };
  Pinned<Step> step_;
  Buffer<std::int32_t> id_position_{2};
  Buffer<unsigned long long> largest_{1};
  std::int64_t step_vocab_ = 0;

  // Of one pass, for reserved_ rows.
  std::int64_t reserved_ = 0;
  Buffer<std::int32_t> ids_;
  Buffer<float> x_, normed_, projected_, turned_, attended_, added_, product_;
  InputScratch input_;
  Buffer<std::uint16_t> narrow_, narrow_out_;  // [rows, widest], [rows, tallest]
  Buffer<std::uint8_t> workspace_, attention_workspace_;
  Buffer<float> weight_;  // scratch of StoredWeight

  std::int64_t logit_rows_ = 0;
  Buffer<float> logits_;  // [logit_rows_, vocab]
  Buffer<std::int32_t> targets_;
  Buffer<TokenScore> scores_;

  // A pass of one token with its logits, captured once; values counted in it (InputCounts).
  DecodeGraph graph_;
  std::int64_t graph_values_ = 0;
  bool stepped_ = false;  // the last pass was of one token: logits are made, results lie in step_
};

}  // namespace halfbyte::cuda
