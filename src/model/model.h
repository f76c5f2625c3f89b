// A llama-family model in memory and its forward pass, float32 throughout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/layer.h"
#include "model/linears.h"
#include "ops/rope/op.h"

namespace halfbyte {

// Is shown what goes into linears, before it is rounded: x [rows, columns], the input of that place of that layer
// (linears.h). The head's input is shown for every row, whether its logits are asked for or not.
using InputObserver = std::function<void(LinearInput input, std::int64_t layer, const float* x,
                                         std::int64_t rows, std::int64_t columns)>;

class Model {
 public:
  // Reads config.json and every weight of a model directory (plain or quantized by halfbyte). Throws Error
  // naming file and tensor for anything missing, misshapen or superfluous-but-expected.
  static Model load(const std::filesystem::path& dir, ThreadPool& pool);

  const ModelConfig& config() const { return config_; }
  const std::vector<std::string>& warnings() const { return warnings_; }  // sentences for the user
  std::int64_t parameters() const { return parameters_; }  // elements of all weights, a tied one once

  // Runs ids as the next tokens after those in the cache and writes the final normed hidden states to
  // hidden [ids, hidden size]. Throws bad_input for an id outside the vocabulary or a cache without room.
  void forward(std::span<const std::int32_t> ids, KvCache& cache, float* hidden, ThreadPool& pool);

  // Called in every forward() from now on, on its thread; empty: nobody looks.
  void observe_inputs(InputObserver observer) { observer_ = std::move(observer); }

  // logits [rows, vocab] of hidden [rows, hidden size].
  void logits(const float* hidden, std::int64_t rows, float* logits, ThreadPool& pool);

  const ClippingCounts& clipping() const { return clipping_; }  // since the model was loaded

 private:
  Model() = default;

  ModelConfig config_;
  std::vector<Layer> layers_;
  Array<float> embedding_;   // [vocab, hidden]
  Array<float> final_norm_;  // [hidden]
  Linear head_;              // empty weight when the embedding serves
  std::optional<RopeTable> rope_;
  std::vector<std::string> warnings_;
  std::int64_t parameters_ = 0;
  InputObserver observer_;
  ClippingCounts clipping_;
};

// Throws bad_input, naming the tensor, where the checkpoint lacks one that config asks for or has it in another shape
// (the head aside, which may be tied). For plain checkpoints, before something is made of them.
void check_tensors(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace halfbyte
