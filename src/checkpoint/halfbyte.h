// halfbyte's own checkpoints: how quantized tensors are named in model.safetensors and described in config.json.
//
//   config.json   the model's own, with "quantization_config": {"quant_method": "halfbyte", "version": 1,
//                 "activations": null or {spec, "scope"}, "tensors": {"model.layers.0.mlp.up_proj.weight": {spec,
//                 "shape": [1536, 576], "dtype": "BF16"}, ..}}
//   spec          "format", "block_size", and where they apply "double_quant", "global_scale", "mx_scale", "four_six"
//   tensors       NAME.codes          U8 [rows, bytes a row], nf4 and fp4 U8 [bytes] (bit order: quantized_tensor.h)
//                 NAME.scales         F8_E4M3 [rows, blocks a row] (nvfp4), U8 alike (E8M0 of mxfp4, mxfp8), U8 [blocks]
//                                     (double quantization), F32 [blocks] (nf4, fp4), F32 [rows, blocks a row] (int4, int8)
//                 NAME.global_scale   F32 [] (nvfp4)
//                 NAME.nested_absmax  F32 [ceil(blocks / 256)], NAME.offset  F32 [] (double quantization)
//   inputs        where a method changes what linears read, "inputs": {INPUT: {..}} (input_transform.h), "input": INPUT in the
//                 entry of every tensor that reads it, and "version": 2. Such a tensor is stored as the engine multiplies it:
//                 its columns scaled, rotated, gathered and, with residual channels, [K | S]
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/input_transform.h"
#include "formats/quantized_tensor.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace halfbyte {

inline constexpr int kHalfbyteVersion = 2;  // newest that is read; 1 is a checkpoint without inputs

// Which elements of an activation [M, K] share a global scale (nvfp4) at run time: all of them, or those of a row.
enum class ActivationScope : std::uint8_t { tensor, token };

struct ActivationSpec {
  QuantSpec spec;
  ActivationScope scope = ActivationScope::tensor;
  friend bool operator==(const ActivationSpec&, const ActivationSpec&) = default;
};

struct QuantizedInfo {
  QuantSpec spec;
  Shape shape;
  DType source = DType::bf16;
  std::string input = {};  // in HalfbyteQuantization::inputs, or empty: what the model computes, as it is
};

struct HalfbyteQuantization {
  std::map<std::string, QuantizedInfo, std::less<>> tensors;
  std::map<std::string, InputInfo, std::less<>> inputs = {};
  std::optional<ActivationSpec> activations;  // of the inputs of all linears whose weight is quantized
};

// The quantization_config member; where names the file in messages.
Json to_json(const HalfbyteQuantization& quantization);
HalfbyteQuantization parse_halfbyte_quantization(const Json& config, const std::string& where);

// The tensors of the file that hold one quantized tensor, in the order of append_parts.
std::vector<TensorSpec> part_specs(const std::string& name, const QuantizedInfo& info);
// Writes all parts of a tensor whose specs the writer was made with.
void append_parts(SafetensorsWriter& writer, const std::string& name, const QuantizedTensor& tensor);
// Reads the parts back; throws bad_input naming the part that is missing, misshapen or holds an impossible scale.
QuantizedTensor read_parts(const SafetensorsModel& files, const std::string& name, const QuantizedInfo& info);

}  // namespace halfbyte
