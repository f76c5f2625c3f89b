// A llama-family model on a CUDA device: weights as the checkpoint stores them, everything else in float32.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/arithmetic.h"
#include "gpu/stored_weight.h"
#include "model/layer.h"
#include "model/model.h"
#include "model/weight_reader.h"
#include "ops/rope/op.h"

namespace halfbyte::cuda {

// What a LinearTransform needs on the device; linears that read the same share it.
struct DeviceTransform {
  std::shared_ptr<const LinearTransform> host;
  Buffer<float> scale;                     // [channels] or empty
  Buffer<std::int32_t> columns, residual;  // [width], [residual], or empty
};

// A linear, or several that read the same and are multiplied as one matrix.
struct DeviceLinear {
  StoredWeight weight, outliers;    // outliers: the last columns, where they have a format of their own
  Buffer<float> bias;               // [out] or empty
  Buffer<std::uint16_t> bias_f16;   // the same in FP16, of packed weights
  std::int64_t out = 0, in = 0;     // in: columns of both
  std::vector<std::int64_t> parts;  // rows of each linear, out in all
  std::optional<ActivationSpec> activations;
  std::shared_ptr<const DeviceTransform> transform;  // null: reads what the model computes

  // Whether FP16 is all that it wants of its input.
  bool takes_f16() const { return weight.is_packed() && outliers.empty() && !activations && !transform; }
};

struct DeviceLayer {
  Buffer<float> attention_norm, mlp_norm;    // [hidden]
  Buffer<float> q_norm, k_norm;              // [head_dim] or empty
  std::vector<DeviceLinear> attention, mlp;  // q, k, v; gate, up: as many as do not go together
  DeviceLinear o, down;
};

struct CudaModel {
  // Refuses what Model::load() refuses, and heads too wide for the kernels.
  static CudaModel load(const std::filesystem::path& dir, CudaArithmetic arithmetic, ThreadPool& pool);

  // All linears but the head, which may be the embedding.
  template <class Visit>
  void for_each_linear(Visit visit) const {
    for (const DeviceLayer& layer : layers) {
      for (const DeviceLinear& linear : layer.attention) visit(linear);
      visit(layer.o);
      for (const DeviceLinear& linear : layer.mlp) visit(linear);
      visit(layer.down);
    }
  }

  ModelConfig config;
  StoredWeight embedding;  // [vocab, hidden], plain
  Buffer<float> final_norm;
  std::vector<DeviceLayer> layers;
  DeviceLinear head;  // empty weight when the embedding serves
  std::vector<std::string> warnings;
  std::int64_t parameters = 0;
  std::int64_t most_scratch = 0, widest = 0, tallest = 0;  // of all linears: StoredWeight::scratch(); in; out
};

}  // namespace halfbyte::cuda
