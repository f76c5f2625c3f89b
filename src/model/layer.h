// One transformer layer in memory and its work on rows of a sequence, in stages: forward() runs them in turn, and who quantizes
// layer by layer stops between them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/input_transform.h"
#include "checkpoint/spec_json.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "model/config.h"
#include "ops/matmul_bf16/op.h"
#include "ops/rope/op.h"

namespace halfbyte {

// What comes before a linear's product besides rounding (checkpoint/input_transform.h); linears that read the same share it.
struct LinearTransform {
  InputTransform input;
  std::vector<std::int32_t> residual;  // places of the residual channels among the other columns
};

// A weight matrix decoded to float32, and how its input is quantized when the engine it stands for would do
// so.
struct Linear {
  Array<float> weight;           // [out, in], as it is multiplied
  Array<float> bias;             // [out] or empty
  std::int64_t out = 0, in = 0;  // in: columns of weight
  std::optional<ActivationSpec> activations;
  std::shared_ptr<const LinearTransform> transform;  // null: reads what the model computes
};

struct Layer {
  Array<float> attention_norm, mlp_norm;  // [hidden]
  Array<float> q_norm, k_norm;            // [head_dim] or empty
  Linear q, k, v, o, gate, up, down;
};

// Activation values rounded under static scales, and how many of them lay beyond the scale's range and saturated.
struct ClippingCounts {
  std::int64_t values = 0, clipped = 0;
};

// Buffers that all inputs of a pass use in turn.
struct InputScratch {
  Array<float> changed, rounded;
};

// x [rows, columns], the input of one or more linears, transformed and rounded the way each of them asks for; equal wishes
// share one result, which lives in the scratch.
class SharedInput {
 public:
  SharedInput(const float* x, std::int64_t rows, std::int64_t columns, InputScratch& scratch,
              ClippingCounts& counts, ThreadPool& pool);

  // [rows, linear.in] as linear's engine would see it.
  const float* for_linear(const Linear& linear);

 private:
  const float* make();
  void count_clipped(const float* changed, const InputInfo& info);

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

// What linears compute in: float32, or their inputs and weights rounded to BF16 first, which is faster.
enum class Arithmetic : std::uint8_t { f32, bf16 };

// The stages of a layer on `rows` rows that follow `first` others of their sequence. x [rows, hidden] is the residual stream. What
// a stage returns lies in this object until the same stage of the next layer; each takes what the ones before it left.
class LayerStages {
 public:
  // rope must hold first + rows positions.
  LayerStages(const ModelConfig& config, const RopeTable& rope, std::int64_t rows, std::int64_t first,
              ClippingCounts& counts, ThreadPool& pool, Arithmetic arithmetic = Arithmetic::f32);

  // What q, k and v read, [rows, hidden].
  const float* attention_input(const Layer& layer, const float* x);
  // What o reads, [rows, heads * head_dim]. keys, values [first + rows, kv_heads * head_dim]: the first rows are there, the
  // others are written. window: of that layer (config.windows).
  const float* attention_output(const Layer& layer, float* keys, float* values, std::int64_t window);
  // x += o(attended); attended as attention_output gives it.
  void add_attention(const Layer& layer, const float* attended, float* x);
  // What gate and up read, [rows, hidden].
  const float* mlp_input(const Layer& layer, const float* x);
  // What down reads, [rows, intermediate].
  const float* mlp_product(const Layer& layer);
  // x += down(product); product as mlp_product gives it.
  void add_mlp(const Layer& layer, const float* product, float* x);

 private:
  void multiply(const Linear& linear, SharedInput& input, float* out);
  SharedInput input(const float* x, std::int64_t columns);

  const ModelConfig& config_;
  const RopeTable& rope_;
  std::int64_t rows_, first_;
  ClippingCounts& counts_;
  ThreadPool& pool_;
  const Arithmetic arithmetic_;
  InputScratch scratch_;
  Bf16Matrix input_bf16_, weight_bf16_;
  Array<float> normed_, q_, attended_, added_, gate_, up_;
};

}  // namespace halfbyte
