// What a method does to an input of linears before it is rounded, and so to the columns of their weights.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/spec_json.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace halfbyte {

// In order: x / scale, rotation, gather of columns; then rounding, where the last columns may be residuals of others or
// have a format of their own.
struct InputInfo {
  std::string method;         // that chose it, for people: "arc", "smoothquant", "hadamard"
  std::int64_t channels = 0;  // K, what the model computes
  std::int64_t width = 0;     // columns of the weights that read it, residual ones included
  std::int64_t residual = 0;  // S, the last columns
  bool shared_scale = false;  // residuals under the global scale of the input (ops/augment)
  std::int64_t hadamard = 0;  // size of the rotation (ops/transform_input), 0: none
  bool scaled = false;        // INPUT.scale is there
  bool gathered = false;      // INPUT.columns is there; else width = channels
  std::int64_t outliers =
      0;  // last columns in outlier_spec, weights and activations alike; not with residuals
  QuantSpec outlier_spec = {};
  // nvfp4 activations under a static scale: that scale, and that of residuals of their own; 0: none
  float global_scale = 0.0f, residual_global_scale = 0.0f;
};

struct InputTransform {
  InputInfo info;
  std::vector<float> scale;  // [channels] or empty
  std::vector<std::int32_t>
      columns;  // [width] or empty: a channel for each column, -1 a column of zeros (padding)
};

// Is given the stored tensors of something, name and bytes, in the order of their specs.
using PartVisitor = std::function<void(const std::string& name, std::span<const std::byte> bytes)>;

// The member of quantization_config.inputs.
Json to_json(const InputInfo& info);
InputInfo parse_input_info(const Json& json, const std::string& where);

// INPUT.scale F32 [channels], INPUT.columns I32 [width], where info has them.
std::vector<TensorSpec> input_specs(const std::string& name, const InputInfo& info);
void for_each_part(const std::string& name, const InputTransform& transform, const PartVisitor& visit);

// Reads and checks both: positive finite scales; every channel once among the first width - residual columns, with padding
// only; no residual column twice.
InputTransform read_input(const SafetensorsModel& files, const std::string& name, const InputInfo& info);

// The check of columns alone, whose tensor is `part` of `file`.
void check_columns(const InputTransform& transform, const std::string& file, const std::string& part);

// Where the residual columns' channels lie among the first width - residual columns, [residual].
std::vector<std::int32_t> residual_positions(const InputTransform& transform);

}  // namespace halfbyte
