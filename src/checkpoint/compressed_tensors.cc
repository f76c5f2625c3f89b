// compressed-tensors' 4-bit float checkpoints (llm-compressor, vLLM), P a linear layer.
//   nvfp4-pack-quantized  P.weight_packed U8 [N, K/2] low nibble first; P.weight_scale F8_E4M3 [N, K/16];
//                         P.weight_global_scale F32 [1], a divisor; P.input_global_scale F32 [1], a divisor, where inputs are
//                         rounded under a scale from calibration (W4A4)
//   mxfp4-pack-quantized  P.weight_packed as above; P.weight_scale U8 [N, K/32], E8M0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/ecosystem.h"
#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::string_view kPacked = ".weight_packed";

std::string layer_of(const std::string& name) {
  return name.substr(0, name.size() - std::string(".weight").size());
}

// What the config groups say of one weight format.
struct Scheme {
  bool weights = false;                                       // some group has it
  std::optional<std::optional<ActivationScope>> activations;  // how inputs are rounded, or that they are not
  bool mixed = false;                                         // groups differ in that
};

struct Schemes {
  Scheme nvfp4, mxfp4;
};

// Members of weights or input_activations that must have exactly these values; older releases leave scale_dtype out and
// write more (actorder, observer_kwargs, zp_dtype), which changes nothing.
bool is_scheme(const Json& args, const char* strategy, std::int64_t group_size, const std::string& where) {
  return json_int64(args, "num_bits", where) == 4 && json_string(args, "type", where) == "float" &&
         json_optional_string(args, "strategy", where) == strategy &&
         json_optional_int64(args, "group_size", where) == group_size &&
         json_optional_bool(args, "symmetric", where).value_or(true);
}

std::optional<ActivationScope> activations_of(const Json& group, const char* strategy,
                                              std::int64_t group_size, const std::string& where) {
  const Json* inputs = json_find(group, "input_activations");
  if (!inputs) return std::nullopt;
  const std::string place = where + ": input_activations";
  if (!is_scheme(*inputs, strategy, group_size, place))
    fail(ErrorKind::unsupported, "{}: other than 4-bit floats in groups of {} like the weights are not read",
         place, group_size);
  const Json* dynamic = json_find(*inputs, "dynamic");
  const bool local = dynamic && dynamic->is_string() && dynamic->get_ref<const std::string&>() == "local";
  if (group_size == 32) {
    if (!dynamic || *dynamic != Json(true))
      fail(ErrorKind::unsupported, "{}: dynamic must be true for mxfp4", place);
    return ActivationScope::tensor;
  }
  if (local) return ActivationScope::fixed;
  if (dynamic && *dynamic == Json(true)) return ActivationScope::tensor;
  fail(ErrorKind::unsupported,
       "{}: dynamic must be \"local\" (or true), block scales of activations that are fixed are "
       "not read",
       place);
}

Schemes parse_groups(const Json& quantization, const std::string& where) {
  Schemes schemes;
  for (const auto& [name, group] : json_object(quantization, "config_groups", where).items()) {
    const std::string place = where + ": config_groups: " + quote(name);
    if (!group.is_object()) fail_input("{}: expected an object", place);
    const Json& weights = json_object(group, "weights", place);
    const std::string weights_place = place + ": weights";
    const bool nvfp4 = is_scheme(weights, "tensor_group", 16, weights_place);
    if (!nvfp4 && !is_scheme(weights, "group", 32, weights_place))
      fail(
          ErrorKind::unsupported,
          "{}: only nvfp4 (tensor_group of 16) and mxfp4 (group of 32), 4-bit floats and symmetric, are read",
          weights_place);
    if (json_find(group, "output_activations"))
      fail(ErrorKind::unsupported, "{}: output_activations are not read", place);
    Scheme& scheme = nvfp4 ? schemes.nvfp4 : schemes.mxfp4;
    const auto activations = activations_of(group, nvfp4 ? "tensor_group" : "group", nvfp4 ? 16 : 32, place);
    scheme.mixed = scheme.mixed || (scheme.activations && *scheme.activations != activations);
    scheme.activations = activations;
    scheme.weights = true;
  }
  if (schemes.mxfp4.mixed)
    fail(ErrorKind::unsupported, "{}: config_groups round the inputs of mxfp4 layers in different ways",
         where);
  return schemes;
}

void check_config(const Json& quantization, const std::string& where) {
  const auto status = json_optional_string(quantization, "quantization_status", where);
  if (status && *status != "compressed")
    fail(ErrorKind::unsupported, "{}: quantization_status is {}, only compressed checkpoints are read", where,
         quote(*status));
  for (const char* key : {"transform_config", "sparsity_config"}) {
    const Json* member = json_find(quantization, key);
    const bool dense =
        member && member->is_object() && member->contains("format") && member->at("format") == "dense";
    if (member && !member->empty() && !dense) fail(ErrorKind::unsupported, "{}: {} is not read", where, key);
  }
}

std::vector<std::string> parts(const std::string& name, const QuantizedInfo& info,
                               const InputInfo* /*input*/) {
  const std::string layer = layer_of(name);
  std::vector<std::string> names{layer + ".weight_packed", layer + ".weight_scale"};
  if (info.spec.format == Format::nvfp4) names.push_back(layer + ".weight_global_scale");
  if (!info.input.empty()) names.push_back(layer + ".input_global_scale");
  return names;
}

// Format, shape and parts of the layer, from what is stored; the groups must know that format.
QuantizedInfo parse_layer(const SafetensorsModel& files, const std::string& layer, const Schemes& schemes,
                          const std::string& where) {
  const std::string name = layer + ".weight";
  const TensorView& packed = *files.describe(layer + std::string(kPacked));
  if (packed.shape.size() == 3)
    fail(ErrorKind::unsupported, "{}: {} has shape {}; stacked experts are not read", files.path(),
         quote(layer + std::string(kPacked)), to_string(packed.shape));
  if (packed.dtype != DType::u8 || packed.shape.size() != 2)
    fail_input("{}: {} is {} {}, expected U8 [rows, columns / 2]", files.path(),
               quote(layer + std::string(kPacked)), dtype_name(packed.dtype), to_string(packed.shape));
  QuantizedInfo info{.spec = {.format = Format::mxfp4, .mx_scale = MxScaleRule::compressed_tensors},
                     .shape = {packed.shape[0], 2 * packed.shape[1]}};
  if (files.describe(layer + ".weight_global_scale") ||
      part_of(files, name, layer + ".weight_scale").dtype == DType::f8_e4m3)
    info.spec = {.format = Format::nvfp4, .global_scale = GlobalScaleRule::compressed_tensors};
  const bool nvfp4 = info.spec.format == Format::nvfp4;
  if (!(nvfp4 ? schemes.nvfp4 : schemes.mxfp4).weights)
    fail_input("{}: {} is stored as {}, which no group of {} describes", files.path(), quote(name),
               format_name(info.spec.format), where);
  const std::int64_t block = effective_block(info.spec, 0);
  if (info.shape[1] % block != 0)
    fail_input("{}: {} has {} columns, expected a multiple of {}", files.path(), quote(name), info.shape[1],
               block);
  part_of(files, name, layer + ".weight_scale", nvfp4 ? DType::f8_e4m3 : DType::u8,
          {info.shape[0], info.shape[1] / block});
  if (nvfp4) scale_of(files, name, layer + ".weight_global_scale");
  return info;
}

HalfbyteQuantization parse(const Json& config, const Json& quantization, const std::string& where,
                           const SafetensorsModel& files) {
  check_config(quantization, where);
  const Schemes schemes = parse_groups(quantization, where);
  const DType source = model_dtype(config, where);
  HalfbyteQuantization result;
  std::set<std::string> used;
  std::vector<std::string> plain_inputs;
  for (const std::string& key : files.names()) {
    if (!key.ends_with(kPacked)) continue;
    const std::string layer = key.substr(0, key.size() - kPacked.size()), name = layer + ".weight";
    QuantizedInfo info = parse_layer(files, layer, schemes, where);
    info.source = source;
    const Scheme& scheme = info.spec.format == Format::nvfp4 ? schemes.nvfp4 : schemes.mxfp4;
    const std::string input = layer + ".input_global_scale";
    const bool fixed = *scheme.activations == ActivationScope::fixed || scheme.mixed;
    std::optional<ActivationScope> scope = *scheme.activations;
    if (scheme.mixed) scope = files.describe(input) ? std::optional(ActivationScope::fixed) : std::nullopt;
    if (fixed && scope) {
      const float scale = scale_of(files, name, input);
      check_activation_scale(files, input, GlobalScaleRule::compressed_tensors, scale, "divisor");
      add_input_scale(result, layer, info, scale);
    }
    if (scope) {
      info.own_activations = true;
      info.activations = {.spec = info.spec, .scope = *scope};
    }
    for (std::string& part : parts(name, info, nullptr)) used.insert(std::move(part));
    if (files.describe(name)) fail_input("{}: {} is there both packed and plain", files.path(), quote(name));
    result.tensors.emplace(name, std::move(info));
  }
  if (result.tensors.empty())
    fail_input("{}: holds no packed weight although {} describes some", files.path(), where);
  constexpr std::string_view kSuffixes[] = {
      ".weight_scale",     ".weight_global_scale", ".input_global_scale", ".weight_zero_point",
      ".input_zero_point", ".input_scale",         ".weight_g_idx",       ".weight_shape"};
  refuse_unused(files, used, kSuffixes);
  use_common_activations(result);
  return result;
}

QuantizedTensor read(const SafetensorsModel& files, const std::string& name, const QuantizedInfo& info,
                     const InputInfo* /*input*/) {
  const std::string layer = layer_of(name);
  QuantizedTensor tensor = make_quantized(info.spec, info.shape, info.source);
  copy_bytes(files.at(layer + std::string(kPacked)), std::as_writable_bytes(tensor.codes.span()));
  copy_bytes(files.at(layer + ".weight_scale"), std::as_writable_bytes(tensor.scales8.span()));
  if (info.spec.format == Format::mxfp4) {
    check_e8m0_scales(files, layer + ".weight_scale", tensor.scales8.span());
    return tensor;
  }
  check_e4m3_scales(files, layer + ".weight_scale", tensor.scales8.span());
  tensor.global_scale = scale_of(files, name, layer + ".weight_global_scale");
  check_magnitude(files, layer + ".weight_global_scale", tensor, "divisor");
  return tensor;
}

std::vector<StoredTensor> store(const std::string& name, const QuantizedTensor& tensor,
                                const StoreContext& context) {
  require_format(tensor, name, kCompressedTensors, {Format::nvfp4, Format::mxfp4});
  const std::string layer = layer_of(name);
  const bool nvfp4 = tensor.spec.format == Format::nvfp4;
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  std::vector<StoredTensor> parts;
  parts.push_back(
      stored(layer + std::string(kPacked), DType::u8, {rows, columns / 2}, tensor.codes.as_bytes()));
  parts.push_back(stored(layer + ".weight_scale", nvfp4 ? DType::f8_e4m3 : DType::u8,
                         {rows, columns / effective_block(tensor.spec, columns)}, tensor.scales8.as_bytes()));
  if (nvfp4) {
    parts.push_back(stored_scalar(layer + ".weight_global_scale", {1},
                                  convert_global_scale(tensor.spec.global_scale, tensor.global_scale, true,
                                                       context.allow_rounding, name)));
    if (const auto scale = static_input_scale(context, name, true))
      parts.push_back(stored_scalar(layer + ".input_global_scale", {1}, *scale));
  } else if (context.activations && (context.activations->spec.format != Format::mxfp4 ||
                                     context.activations->spec.mx_scale != MxScaleRule::compressed_tensors)) {
    fail(ErrorKind::unsupported,
         "{}: its input is rounded to {}, but compressed-tensors rounds it to mxfp4 by its own rule; "
         "quantize with "
         "--mx-scale compressed-tensors, or leave that out with --weights-only",
         quote(name), to_string(*context.activations));
  }
  return parts;
}

Json config(const EcosystemConfig& model) {
  const QuantizedInfo& first = model.quantization.tensors.begin()->second;
  const bool nvfp4 = first.spec.format == Format::nvfp4;
  const char* format = nvfp4 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
  Json weights = {{"num_bits", 4},
                  {"type", "float"},
                  {"strategy", nvfp4 ? "tensor_group" : "group"},
                  {"group_size", nvfp4 ? 16 : 32},
                  {"symmetric", true},
                  {"dynamic", false},
                  {"scale_dtype", nvfp4 ? "torch.float8_e4m3fn" : "torch.uint8"}};
  Json activations = nullptr;
  if (model.quantization.activations_of(first)) {
    activations = weights;
    activations["dynamic"] = nvfp4 ? Json("local") : Json(true);
    if (nvfp4) activations["observer"] = "static_minmax";
  }
  Json group = {{"targets", Json::array({"Linear"})},
                {"weights", std::move(weights)},
                {"input_activations", std::move(activations)},
                {"output_activations", nullptr},
                {"format", format}};
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups", {{"group_0", std::move(group)}}},
          {"ignore", model.kept},
          {"kv_cache_scheme", nullptr},
          {"global_compression_ratio", nullptr},
          {"sparsity_config", Json::object()},
          {"transform_config", Json::object()},
          {"version", "0.20.1"}};
}

}  // namespace

const Ecosystem kCompressedTensors{"compressed-tensors", parse, parts, read, store, config};

}  // namespace halfbyte
