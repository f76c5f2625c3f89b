// A llama-family model on a CUDA device: weights as the checkpoint stores them, everything else in float32.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

struct DeviceLinear {
  StoredWeight weight, outliers;  // outliers: the last columns, where they have a format of their own
  Buffer<float> bias;             // [out] or empty
  std::int64_t out = 0, in = 0;   // in: columns of both
  std::optional<ActivationSpec> activations;
  std::shared_ptr<const DeviceTransform> transform;  // null: reads what the model computes
};

struct DeviceLayer {
  Buffer<float> attention_norm, mlp_norm;  // [hidden]
  Buffer<float> q_norm, k_norm;            // [head_dim] or empty
  DeviceLinear q, k, v, o, gate, up, down;
};

struct CudaModel {
  // Refuses what Model::load() refuses, and heads too wide for the kernels.
  static CudaModel load(const std::filesystem::path& dir, ThreadPool& pool);

  ModelConfig config;
  StoredWeight embedding;  // [vocab, hidden], plain
  Buffer<float> final_norm;
  std::vector<DeviceLayer> layers;
  DeviceLinear head;  // empty weight when the embedding serves
  std::vector<std::string> warnings;
  std::int64_t parameters = 0;
  std::int64_t most_scratch = 0, widest = 0;  // of all linears: scratch() of a weight; columns

  const StoredWeight& head_weight() const { return head.weight.empty() ? embedding : head.weight; }
};

}  // namespace halfbyte::cuda
