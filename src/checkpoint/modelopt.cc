// ModelOpt's NVFP4 checkpoints (TensorRT-LLM, vLLM, SGLang), P a linear layer. Described by hf_quant_config.json, and in newer
// exports by config.json's quantization_config as well.
//   P.weight U8 [N, K/2] low nibble first; P.weight_scale F8_E4M3 [N, K/16]; P.weight_scale_2 F32 [], a factor;
//   P.input_scale F32 [], a factor: inputs are rounded under it (not with quant_algo W4A16_NVFP4)
#include <nlohmann/json.hpp>

#include "checkpoint/ecosystem.h"
#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::string_view kScale2 = "_scale_2";

std::string layer_of(const std::string& name) {
  return name.substr(0, name.size() - std::string(".weight").size());
}

std::vector<std::string> parts(const std::string& name, const QuantizedInfo& info,
                               const InputInfo* /*input*/) {
  std::vector<std::string> names{name, name + "_scale", name + "_scale_2"};
  if (!info.input.empty()) names.push_back(layer_of(name) + ".input_scale");
  return names;
}

// Whether inputs are rounded. `quantization` is the entry of config.json or the file of its own, with or without its frame.
bool parse_algorithm(const Json& quantization, const std::string& where) {
  const Json* inner = json_find(quantization, "quantization");
  const Json& entry = inner ? *inner : quantization;
  const std::string algorithm = json_string(entry, "quant_algo", where);
  if (algorithm != "NVFP4" && algorithm != "W4A16_NVFP4")
    fail(ErrorKind::unsupported, "{}: quant_algo is {}, only NVFP4 and W4A16_NVFP4 are read", where,
         quote(algorithm));
  const auto group = json_optional_int64(entry, "group_size", where);
  if (group && *group != kNvfp4Block)
    fail_input("{}: group_size is {}, expected {} for {}", where, *group, kNvfp4Block, algorithm);
  return algorithm == "NVFP4";
}

HalfbyteQuantization parse(const Json& config, const Json& quantization, const std::string& where,
                           const SafetensorsModel& files) {
  const bool rounds_inputs = parse_algorithm(quantization, where);
  const DType source = model_dtype(config, where);
  HalfbyteQuantization result;
  std::set<std::string> used;
  for (const std::string& key : files.names()) {
    const TensorView& view = *files.describe(key);
    const bool packed = key.ends_with(".weight") && view.dtype == DType::u8;
    const std::string name = packed ? key : key.substr(0, key.size() - kScale2.size());
    if (!packed && (!key.ends_with(".weight_scale_2") || files.describe(name))) continue;
    const TensorView& codes = part_of(files, name, name);
    if (codes.shape.size() == 3)
      fail(ErrorKind::unsupported, "{}: {} has shape {}; stacked experts are not read", files.path(),
           quote(name), to_string(codes.shape));
    if (codes.shape.size() != 2)
      fail_input("{}: {} is U8 {}, expected [rows, columns / 2]", files.path(), quote(name),
                 to_string(codes.shape));
    QuantizedInfo info{.spec = {.format = Format::nvfp4, .global_scale = GlobalScaleRule::modelopt},
                       .shape = {codes.shape[0], 2 * codes.shape[1]},
                       .source = source};
    if (info.shape[1] % kNvfp4Block != 0)
      fail_input("{}: {} has {} columns, expected a multiple of {}", files.path(), quote(name), info.shape[1],
                 kNvfp4Block);
    part_of(files, name, name + "_scale", DType::f8_e4m3, {info.shape[0], info.shape[1] / kNvfp4Block});
    scale_of(files, name, name + "_scale_2");
    if (rounds_inputs) {
      const std::string input = layer_of(name) + ".input_scale";
      const float scale = scale_of(files, name, input);
      check_activation_scale(files, input, GlobalScaleRule::modelopt, scale, "factor");
      add_input_scale(result, layer_of(name), info, scale);
      info.own_activations = true;
      info.activations = {.spec = info.spec, .scope = ActivationScope::fixed};
    }
    for (std::string& part : parts(name, info, nullptr)) used.insert(std::move(part));
    result.tensors.emplace(name, std::move(info));
  }
  if (result.tensors.empty())
    fail_input("{}: holds no packed weight although {} says so", files.path(), where);
  for (const std::string& name : files.names())
    if (name.ends_with(".pre_quant_scale"))
      fail(ErrorKind::unsupported, "{}: {}: weights scaled by AWQ are not read", files.path(), quote(name));
  constexpr std::string_view kSuffixes[] = {".weight_scale", ".weight_scale_2", ".input_scale"};
  refuse_unused(files, used, kSuffixes);
  use_common_activations(result);
  return result;
}

QuantizedTensor read(const SafetensorsModel& files, const std::string& name, const QuantizedInfo& info,
                     const InputInfo* /*input*/) {
  QuantizedTensor tensor = make_quantized(info.spec, info.shape, info.source);
  copy_bytes(files.at(name), std::as_writable_bytes(tensor.codes.span()));
  copy_bytes(files.at(name + "_scale"), std::as_writable_bytes(tensor.scales8.span()));
  check_e4m3_scales(files, name + "_scale", tensor.scales8.span());
  tensor.global_scale = scale_of(files, name, name + "_scale_2");
  check_magnitude(files, name + "_scale_2", tensor, "factor");
  return tensor;
}

std::vector<StoredTensor> store(const std::string& name, const QuantizedTensor& tensor,
                                const StoreContext& context) {
  require_format(tensor, name, kModelopt, {Format::nvfp4});
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  std::vector<StoredTensor> parts;
  parts.push_back(stored(name, DType::u8, {rows, columns / 2}, tensor.codes.as_bytes()));
  parts.push_back(
      stored(name + "_scale", DType::f8_e4m3, {rows, columns / kNvfp4Block}, tensor.scales8.as_bytes()));
  parts.push_back(stored_scalar(name + "_scale_2", {},
                                convert_global_scale(tensor.spec.global_scale, tensor.global_scale, false,
                                                     context.allow_rounding, name)));
  if (const auto scale = static_input_scale(context, name, false))
    parts.push_back(stored_scalar(layer_of(name) + ".input_scale", {}, *scale));
  return parts;
}

bool rounds_inputs(const EcosystemConfig& model) {
  return model.quantization.activations_of(model.quantization.tensors.begin()->second).has_value();
}

// Engines know these files by the name of the producer; the version is that of the layout.
Json producer() { return {{"name", "modelopt"}, {"version", "0.47.0"}}; }

Json config(const EcosystemConfig& model) {
  const Json args = {{"num_bits", 4}, {"type", "float"}, {"group_size", kNvfp4Block}, {"dynamic", false}};
  Json group = {{"weights", args}, {"targets", Json::array({"Linear"})}};
  if (rounds_inputs(model)) group["input_activations"] = args;
  return {{"quant_method", "modelopt"},
          {"quant_algo", rounds_inputs(model) ? "NVFP4" : "W4A16_NVFP4"},
          {"config_groups", {{"group_0", std::move(group)}}},
          {"ignore", model.kept},
          {"producer", producer()}};
}

}  // namespace

Json modelopt_quant_config(const EcosystemConfig& model) {
  return {{"producer", producer()},
          {"quantization",
           {{"quant_algo", rounds_inputs(model) ? "NVFP4" : "W4A16_NVFP4"},
            {"kv_cache_quant_algo", nullptr},
            {"group_size", kNvfp4Block},
            {"exclude_modules", model.kept}}}};
}

const Ecosystem kModelopt{"modelopt", parse, parts, read, store, config};

}  // namespace halfbyte
