// What a method does to an input of linears before it is rounded, and so to the columns of their weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"
#include "io/safetensors.h"

namespace halfbyte {

// In order: x / scale, rotation, gather of columns; then rounding, and the residuals of the last columns.
struct InputInfo {
  std::string method;         // that chose it, for people: "arc", "smoothquant", "hadamard"
  std::int64_t channels = 0;  // K, what the model computes
  std::int64_t width = 0;     // columns of the weights that read it, residual ones included
  std::int64_t residual = 0;  // S, the last columns
  bool shared_scale = false;  // residuals under the global scale of the input (ops/augment)
  std::int64_t hadamard = 0;  // size of the rotation (ops/transform_input), 0: none
  bool scaled = false;        // INPUT.scale is there
  bool gathered = false;      // INPUT.columns is there; else width = channels
};

struct InputTransform {
  InputInfo info;
  std::vector<float> scale;  // [channels] or empty
  std::vector<std::int32_t>
      columns;  // [width] or empty: a channel for each column, -1 a column of zeros (padding)
};

// The member of quantization_config.inputs.
Json to_json(const InputInfo& info);
InputInfo parse_input_info(const Json& json, const std::string& where);

// INPUT.scale F32 [channels], INPUT.columns I32 [width], where info has them.
std::vector<TensorSpec> input_specs(const std::string& name, const InputInfo& info);
void append_input(SafetensorsWriter& writer, const std::string& name, const InputTransform& transform);

// Reads and checks both: positive finite scales; every channel once among the first width - residual columns, with padding
// only; no residual column twice.
InputTransform read_input(const SafetensorsModel& files, const std::string& name, const InputInfo& info);

// Where the residual columns' channels lie among the first width - residual columns, [residual].
std::vector<std::int32_t> residual_positions(const InputTransform& transform);

}  // namespace halfbyte
