// The ecosystems whose checkpoints are read and written besides halfbyte's own, one row each.
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/stored_parts.h"

namespace halfbyte {

// What the entry of config.json says beyond the tensors themselves.
struct EcosystemConfig {
  const HalfbyteQuantization& quantization;
  std::vector<std::string> kept;  // linear layers that stay as they are, by module name: "lm_head"
  DType dtype = DType::bf16;      // of the tensors that stay as they are
};

// What goes with one tensor into their files.
struct StoreContext {
  const InputInfo* input = nullptr;             // what feeds it, where something is known of that
  std::span<const std::int32_t> columns = {};   // [width] that input's, where it gathers them
  const ActivationSpec* activations = nullptr;  // how its input is rounded, or not at all
  bool allow_rounding =
      false;  // a global scale may become its rounded reciprocal, as the ecosystems' own converters do
};

struct Ecosystem {
  std::string_view name;  // quant_method in config.json, and what `convert --to` takes

  // Reading. `quantization` is their entry in `config` (or in a file of its own), `where` its place for messages. Every
  // quantized tensor is found by its parts, and these are checked in type and shape; parts too many are refused.
  HalfbyteQuantization (*parse)(const Json& config, const Json& quantization, const std::string& where,
                                const SafetensorsModel& files);
  // The stored tensors of a quantized one; `input` is what feeds it, or null.
  std::vector<std::string> (*parts)(const std::string& name, const QuantizedInfo& info,
                                    const InputInfo* input);
  // Throws bad_input for scales that are NaN, negative, infinite or implausible.
  QuantizedTensor (*read)(const SafetensorsModel& files, const std::string& name, const QuantizedInfo& info,
                          const InputInfo* input);

  // Writing: the tensors that hold one quantized tensor. Throws unsupported, with the reason, for what their files cannot
  // hold, or not without loss.
  std::vector<StoredTensor> (*store)(const std::string& name, const QuantizedTensor& tensor,
                                     const StoreContext& context);
  Json (*config)(const EcosystemConfig& config);

  // One of the inputs that `parse` found, with its columns; null where these files never gather columns.
  InputTransform (*input)(const SafetensorsModel& files, const HalfbyteQuantization& quantization,
                          const std::string& name) = nullptr;
};

extern const Ecosystem kBitsandbytes, kCompressedTensors, kHalfbyteArc, kModelopt;

// The row of a quant_method; null for others.
const Ecosystem* find_ecosystem(std::string_view quant_method);

// The text of ModelOpt's own description, hf_quant_config.json.
Json modelopt_quant_config(const EcosystemConfig& model);

// What the ecosystems share, for their files.

// What feeds a tensor of that model, or null where nothing is known of that.
const InputInfo* input_of(const HalfbyteQuantization& quantization, const QuantizedInfo& info);
// Whether an engine has to do something with what the model computes before it rounds and multiplies it.
bool changes_columns(const InputInfo& input);
// Whether what it has to do is to put columns into another order, and to add residual ones, at most.
bool gathers_only(const InputInfo& input);
// Throws unsupported unless the tensor is of one of these formats and its rows hold whole blocks.
void require_format(const QuantizedTensor& tensor, const std::string& name, const Ecosystem& ecosystem,
                    std::initializer_list<Format> formats);
// The global scale of one rule as that of another, a divisor (compressed_tensors) or a factor (the others); nothing where that
// takes a reciprocal which is not exact for every block scale.
std::optional<float> exact_global_scale(GlobalScaleRule from, float scale, GlobalScaleRule to);
// The global scale as a divisor (rule compressed_tensors) or a factor (the others), from either. Throws unsupported where the
// reciprocal is not exact for every block scale, unless that is allowed.
float convert_global_scale(GlobalScaleRule from, float scale, bool divisor, bool allow_rounding,
                           const std::string& name);
// The static input scale of a tensor whose activations are rounded to nvfp4; nothing where they are not rounded. Throws
// unsupported for another rounding, or where the scale is found anew for every input.
std::optional<float> static_input_scale(const StoreContext& context, const std::string& name, bool divisor);
// Adds a tensor with its own static activation scale: an input named after the layer.
void add_input_scale(HalfbyteQuantization& quantization, const std::string& layer, QuantizedInfo& info,
                     float scale);
// Where all tensors have the same activations of their own, makes these the activations of the whole.
void use_common_activations(HalfbyteQuantization& quantization);
// Throws bad_input for a stored tensor that ends in one of these suffixes and is not in `used`.
void refuse_unused(const SafetensorsModel& files, const std::set<std::string>& used,
                   std::span<const std::string_view> suffixes);

}  // namespace halfbyte
