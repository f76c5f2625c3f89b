// halfbyte's own checkpoints: how quantized tensors are named in model.safetensors and described in config.json.
//
//   config.json   the model's own, with "quantization_config": {"quant_method": "halfbyte", "version": 1,
//                 "activations": null or {spec, "scope"}, "tensors": {"model.layers.0.mlp.up_proj.weight": {spec,
//                 "shape": [1536, 576], "dtype": "BF16"}, ..}}
//   spec          "format", "block_size", and where they apply "double_quant", "global_scale", "mx_scale", "four_six", "scale_search"
//   tensors       NAME.codes          U8 [rows, bytes a row], nf4 and fp4 U8 [bytes] (bit order: quantized_tensor.h)
//                 NAME.scales         F8_E4M3 [rows, blocks a row] (nvfp4), U8 alike (E8M0 of mxfp4, mxfp8), U8 [blocks]
//                                     (double quantization), F32 [blocks] (nf4, fp4), F32 [rows, blocks a row] (int4, int8)
//                 NAME.global_scale   F32 [] (nvfp4)
//                 NAME.nested_absmax  F32 [ceil(blocks / 256)], NAME.offset  F32 [] (double quantization)
//   inputs        where a method changes what linears read, "inputs": {INPUT: {..}} (input_transform.h), "input": INPUT in the
//                 entry of every tensor that reads it, and "version": 2. Such a tensor is stored as the engine multiplies it:
//                 its columns scaled, rotated, gathered and, with residual channels, [K | S]
//   outliers      the last columns of such an input may have a format of their own, for weights and activations: then NAME
//                 holds the other columns and NAME.outliers, with parts as above, these ("version": 3)
//   activations   in the entry of a tensor: as above, where it differs from most ("version": 3)
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/input_transform.h"
#include "checkpoint/spec_json.h"
#include "formats/quantized_tensor.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace halfbyte {

inline constexpr int kHalfbyteVersion = 3;  // newest that is read; each file says the oldest that suffices

struct QuantizedInfo {
  QuantSpec spec;
  Shape shape;
  DType source = DType::bf16;
  std::string input = {};  // in HalfbyteQuantization::inputs, or empty: what the model computes, as it is
  // How its input is rounded, where that is not how most are (HalfbyteQuantization::activations).
  bool own_activations = false;
  std::optional<ActivationSpec> activations = {};
  std::int64_t outliers = 0;  // last columns that have another format
  QuantSpec outlier_spec = {};
};

struct HalfbyteQuantization {
  std::map<std::string, QuantizedInfo, std::less<>> tensors;
  std::map<std::string, InputInfo, std::less<>> inputs = {};
  // Of the inputs of linears whose weight is quantized, unless the tensor has its own.
  std::optional<ActivationSpec> activations;

  const std::optional<ActivationSpec>& activations_of(const QuantizedInfo& info) const {
    return info.own_activations ? info.activations : activations;
  }
};

// The quantization_config member; where names the file in messages.
Json to_json(const HalfbyteQuantization& quantization);
HalfbyteQuantization parse_halfbyte_quantization(const Json& config, const std::string& where);

// The tensors of the file that hold one quantized tensor, in the order of append_parts.
std::vector<TensorSpec> part_specs(const std::string& name, const QuantizedInfo& info);
void for_each_part(const std::string& name, const QuantizedTensor& tensor, const PartVisitor& visit);
// Writes all parts of a tensor whose specs the writer was made with.
void append_parts(SafetensorsWriter& writer, const std::string& name, const QuantizedTensor& tensor);
// Reads the parts back; throws bad_input naming the part that is missing, misshapen or holds an impossible scale.
// Of a tensor with outliers the other columns; the outliers are those of outlier_part.
QuantizedTensor read_parts(const SafetensorsModel& files, const std::string& name, const QuantizedInfo& info);

// Both parts of a tensor as tensors of their own: all but its outlier columns, under its name; the outliers, under another.
QuantizedInfo main_part(const QuantizedInfo& info);
QuantizedInfo outlier_part(const QuantizedInfo& info);
std::int64_t stored_bytes_of(const QuantizedInfo& info);  // of all parts, outliers included
inline std::string outlier_name(const std::string& name) { return name + ".outliers"; }

}  // namespace halfbyte
