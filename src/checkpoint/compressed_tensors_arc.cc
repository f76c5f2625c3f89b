// ARC models beside compressed-tensors ("halfbyte-arc"): nvfp4-pack-quantized weights with their columns in the order of
// ARC, and the residual channels apart, P a linear layer. S residual channels, K' the others with padding, N rows.
//   P.weight_packed, P.weight_scale, P.weight_global_scale, P.input_global_scale   of the K' columns, as compressed-tensors
//                                 has them; with quant_method changed, the layers of a plain W4A4 model of reordered inputs
//   P.input_order                 I32 [K'], the channel that each column reads, -1: zeros
//   P.residual_channels           I32 [S], channels whose rounding is made good
//   P.residual_packed             U8 [N, S/2], P.residual_scale F8_E4M3 [N, S/16], their weights, under weight_global_scale
//   P.residual_input_global_scale F32 [1], a divisor, where inputs have static scales and residuals one of their own
// The entry of config.json has, besides what compressed-tensors says of the K' columns, "arc_version" and "halfbyte": the entry
// of the same model in halfbyte's own layout, which is what is read.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/ecosystem.h"
#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr int kArcVersion = 1;
constexpr std::string_view kFormatName = "nvfp4-pack-quantized";

std::string layer_of(const std::string& name) {
  return name.substr(0, name.size() - std::string(".weight").size());
}

std::int64_t residual_of(const InputInfo* input) { return input ? input->residual : 0; }
bool gathers(const InputInfo* input) { return input && input->gathered; }
bool has_static_scale(const InputInfo* input) { return input && input->global_scale != 0.0f; }
bool has_residual_scale(const InputInfo* input) { return input && input->residual_global_scale != 0.0f; }

std::vector<TensorSpec> part_list(const std::string& name, const QuantizedInfo& info,
                                  const InputInfo* input) {
  const std::string layer = layer_of(name);
  const std::int64_t rows = info.shape[0], residual = residual_of(input), main = info.shape[1] - residual;
  std::vector<TensorSpec> parts{{layer + ".weight_packed", DType::u8, {rows, main / 2}},
                                {layer + ".weight_scale", DType::f8_e4m3, {rows, main / kNvfp4Block}},
                                {layer + ".weight_global_scale", DType::f32, {1}}};
  if (has_static_scale(input)) parts.push_back({layer + ".input_global_scale", DType::f32, {1}});
  if (gathers(input)) parts.push_back({layer + ".input_order", DType::i32, {main}});
  if (residual) {
    parts.push_back({layer + ".residual_channels", DType::i32, {residual}});
    parts.push_back({layer + ".residual_packed", DType::u8, {rows, residual / 2}});
    parts.push_back({layer + ".residual_scale", DType::f8_e4m3, {rows, residual / kNvfp4Block}});
  }
  if (has_residual_scale(input)) parts.push_back({layer + ".residual_input_global_scale", DType::f32, {1}});
  return parts;
}

std::vector<std::string> parts(const std::string& name, const QuantizedInfo& info, const InputInfo* input) {
  std::vector<std::string> names;
  for (TensorSpec& part : part_list(name, info, input)) names.push_back(std::move(part.name));
  return names;
}

void check_input_kind(const InputInfo& info, const std::string& where) {
  if (info.scaled || info.hadamard > 1 || info.outliers)
    fail_input("{}: scaled, rotated or outlier columns, which {} checkpoints do not have", where,
               kHalfbyteArc.name);
}

// The scale as the description has it, from its divisor in the file.
float scale_from_divisor(const SafetensorsModel& files, const std::string& owner, const std::string& part,
                         GlobalScaleRule rule) {
  const float divisor = scale_of(files, owner, part);
  const auto scale = exact_global_scale(GlobalScaleRule::compressed_tensors, divisor, rule);
  if (!scale)
    fail_input("{}: {} is {}, which is the divisor of no global scale of the rule {}; the file is damaged",
               files.path(), quote(part), divisor, global_scale_rule_name(rule));
  return *scale;
}

void check_static_scale(const SafetensorsModel& files, const std::string& owner, const std::string& part,
                        GlobalScaleRule rule, float described) {
  const float scale = scale_from_divisor(files, owner, part, rule);
  if (scale != described)
    fail_input("{}: {} says {}, but config.json {}; the file is damaged", files.path(), quote(part), scale,
               described);
  check_activation_scale(files, part, rule, scale, "divisor");
}

void check_layer(const SafetensorsModel& files, const HalfbyteQuantization& quantization,
                 const std::string& name, const QuantizedInfo& info, const std::string& where) {
  const InputInfo* input = input_of(quantization, info);
  if (info.spec.format != Format::nvfp4 || info.shape.size() != 2 || !name.ends_with(".weight"))
    fail_input("{}: {} is {} of shape {}, expected the nvfp4 matrix of a layer", where, quote(name),
               to_string(info.spec), to_string(info.shape));
  if (info.shape[1] % kNvfp4Block != 0 || residual_of(input) % kNvfp4Block != 0)
    fail_input("{}: {} has {} columns, {} of them residual, expected multiples of {}", where, quote(name),
               info.shape[1], residual_of(input), kNvfp4Block);
  for (const TensorSpec& part : part_list(name, info, input))
    if (part.dtype != DType::f32) part_of(files, name, part.name, part.dtype, part.shape);
  scale_from_divisor(files, name, layer_of(name) + ".weight_global_scale", info.spec.global_scale);
  if (files.describe(name)) fail_input("{}: {} is there both packed and plain", files.path(), quote(name));
  if (!has_static_scale(input)) return;
  const auto& activations = quantization.activations_of(info);
  if (!activations || activations->scope != ActivationScope::fixed)
    fail_input("{}: the input of {} has a static scale, but is not rounded under one", where, quote(name));
  const GlobalScaleRule rule = activations->spec.global_scale;
  check_static_scale(files, name, layer_of(name) + ".input_global_scale", rule, input->global_scale);
  if (has_residual_scale(input))
    check_static_scale(files, name, layer_of(name) + ".residual_input_global_scale", rule,
                       input->residual_global_scale);
}

std::vector<std::int32_t> columns_of(const SafetensorsModel& files, const std::string& layer,
                                     const InputInfo& info) {
  std::vector<std::int32_t> columns;
  const auto append = [&](const std::string& part) {
    const TensorView& view = files.at(part);
    for (std::int64_t i = 0; i < view.elements(); ++i)
      columns.push_back(load<std::int32_t>(view.data.data(), i));
  };
  if (info.gathered) append(layer + ".input_order");
  if (info.residual) append(layer + ".residual_channels");
  return columns;
}

// Every layer holds the order of its input; those of one input must agree.
InputTransform input(const SafetensorsModel& files, const HalfbyteQuantization& quantization,
                     const std::string& name) {
  InputTransform transform{.info = quantization.inputs.find(name)->second, .scale = {}, .columns = {}};
  std::string first;
  for (const auto& [tensor, info] : quantization.tensors) {
    if (info.input != name) continue;
    const std::string layer = layer_of(tensor);
    std::vector<std::int32_t> columns = columns_of(files, layer, transform.info);
    if (first.empty()) {
      transform.columns = std::move(columns);
      first = layer;
    } else if (columns != transform.columns) {
      fail_input("{}: {} and {} read the same input {}, but in different orders; the file is damaged",
                 files.path(), quote(first), quote(layer), quote(name));
    }
  }
  if (transform.info.gathered && first.empty())
    fail_input("{}: no layer reads the input {}, so its order is nowhere", files.path(), quote(name));
  if (transform.info.gathered) check_columns(transform, files.path(), first + ".input_order");
  return transform;
}

HalfbyteQuantization parse(const Json& /*config*/, const Json& quantization, const std::string& where,
                           const SafetensorsModel& files) {
  const std::int64_t version = json_int64(quantization, "arc_version", where);
  if (version != kArcVersion)
    fail(ErrorKind::unsupported, "{}: arc_version is {}, this build reads {}; use a newer halfbyte", where,
         version, kArcVersion);
  if (const std::string format = json_string(quantization, "format", where); format != kFormatName)
    fail(ErrorKind::unsupported, "{}: format is {}, expected {}", where, quote(format), quote(kFormatName));
  const std::string place = where + ": halfbyte";
  HalfbyteQuantization result =
      parse_halfbyte_quantization(json_object(quantization, "halfbyte", where), place);
  if (result.tensors.empty()) fail_input("{}: describes no tensor", place);
  for (const auto& [name, info] : result.inputs) check_input_kind(info, place + ": inputs: " + quote(name));
  std::set<std::string> used;
  for (const auto& [name, info] : result.tensors) {
    check_layer(files, result, name, info, place);
    for (std::string& part : parts(name, info, input_of(result, info))) used.insert(std::move(part));
  }
  constexpr std::string_view kSuffixes[] = {
      ".weight_packed",   ".weight_scale",       ".weight_global_scale",
      ".input_order",     ".residual_scale",     ".residual_channels",
      ".residual_packed", ".input_global_scale", ".residual_input_global_scale"};
  refuse_unused(files, used, kSuffixes);
  for (const auto& [name, info] : result.inputs) input(files, result, name);
  return result;
}

// Columns [begin, begin + count) of a tensor, whole blocks, and the other way round. Rows are copied, nothing is computed.
struct ColumnPart {
  std::int64_t begin, count;
};

void copy_rows(const std::uint8_t* from, std::int64_t from_stride, std::uint8_t* to, std::int64_t to_stride,
               std::int64_t rows, std::int64_t bytes) {
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(from + row * from_stride, bytes, to + row * to_stride);
}

QuantizedTensor columns_of(const QuantizedTensor& tensor, ColumnPart part) {
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  QuantizedTensor result = make_quantized(tensor.spec, {rows, part.count}, tensor.source);
  result.global_scale = tensor.global_scale;
  copy_rows(tensor.codes.data() + part.begin / 2, columns / 2, result.codes.data(), part.count / 2, rows,
            part.count / 2);
  copy_rows(tensor.scales8.data() + part.begin / kNvfp4Block, columns / kNvfp4Block, result.scales8.data(),
            part.count / kNvfp4Block, rows, part.count / kNvfp4Block);
  return result;
}

void read_columns(const SafetensorsModel& files, const std::string& packed, const std::string& scale,
                  ColumnPart part, QuantizedTensor& tensor) {
  const auto bytes = [&](const std::string& name) {
    const std::span<const std::byte> data = files.at(name).data;
    return std::span(reinterpret_cast<const std::uint8_t*>(data.data()), data.size());
  };
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1], blocks = part.count / kNvfp4Block;
  check_e4m3_scales(files, scale, bytes(scale));
  copy_rows(bytes(packed).data(), part.count / 2, tensor.codes.data() + part.begin / 2, columns / 2, rows,
            part.count / 2);
  copy_rows(bytes(scale).data(), blocks, tensor.scales8.data() + part.begin / kNvfp4Block,
            columns / kNvfp4Block, rows, blocks);
}

QuantizedTensor read(const SafetensorsModel& files, const std::string& name, const QuantizedInfo& info,
                     const InputInfo* input) {
  const std::string layer = layer_of(name);
  const std::int64_t residual = residual_of(input), main = info.shape[1] - residual;
  QuantizedTensor tensor = make_quantized(info.spec, info.shape, info.source);
  read_columns(files, layer + ".weight_packed", layer + ".weight_scale", {0, main}, tensor);
  if (residual)
    read_columns(files, layer + ".residual_packed", layer + ".residual_scale", {main, residual}, tensor);
  tensor.global_scale =
      scale_from_divisor(files, name, layer + ".weight_global_scale", info.spec.global_scale);
  check_magnitude(files, layer + ".weight_global_scale", tensor, "divisor");
  return tensor;
}

float divisor_of(GlobalScaleRule rule, float scale, const std::string& name) {
  const auto divisor = exact_global_scale(rule, scale, GlobalScaleRule::compressed_tensors);
  if (!divisor)
    fail(ErrorKind::unsupported,
         "{}: its global scale {} would have to become a divisor, and its reciprocal is not exact, as it is "
         "in {} checkpoints; quantize with --global-scale pow2 or compressed-tensors",
         quote(name), scale, kHalfbyteArc.name);
  return *divisor;
}

std::vector<StoredTensor> store(const std::string& name, const QuantizedTensor& tensor,
                                const StoreContext& context) {
  require_format(tensor, name, kHalfbyteArc, {Format::nvfp4});
  const std::string layer = layer_of(name);
  const InputInfo* input = context.input;
  const std::int64_t residual = residual_of(input), main = tensor.shape[1] - residual;
  if (residual % kNvfp4Block != 0)
    fail(ErrorKind::unsupported, "{}: {} residual channels, expected a multiple of {}", quote(name), residual,
         kNvfp4Block);
  if (context.activations && context.activations->spec.format != Format::nvfp4)
    fail(ErrorKind::unsupported, "{}: its input is rounded to {}, but {} checkpoints are written with nvfp4",
         quote(name), to_string(*context.activations), kHalfbyteArc.name);
  divisor_of(tensor.spec.global_scale, tensor.global_scale, name);
  const bool fixed = has_static_scale(input);
  const auto input_rule = context.activations ? context.activations->spec.global_scale : GlobalScaleRule{};
  if (fixed) divisor_of(input_rule, input->global_scale, name + " (input)");
  // Scales found at run time have no tensor.
  std::vector<StoredTensor> parts =
      kCompressedTensors.store(name, columns_of(tensor, {0, main}),
                               {.input = input, .activations = fixed ? context.activations : nullptr});
  const auto channels = [&](const char* part, std::int64_t begin, std::int64_t count) {
    parts.push_back(stored(
        layer + part, DType::i32, {count},
        std::as_bytes(std::span(context.columns)
                          .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)))));
  };
  if (gathers(input)) channels(".input_order", 0, main);
  if (!residual) return parts;
  channels(".residual_channels", main, residual);
  const QuantizedTensor last = columns_of(tensor, {main, residual});
  parts.push_back(
      stored(layer + ".residual_packed", DType::u8, {tensor.shape[0], residual / 2}, last.codes.as_bytes()));
  parts.push_back(stored(layer + ".residual_scale", DType::f8_e4m3, {tensor.shape[0], residual / kNvfp4Block},
                         last.scales8.as_bytes()));
  if (has_residual_scale(input))
    parts.push_back(stored_scalar(layer + ".residual_input_global_scale", {1},
                                  divisor_of(input_rule, input->residual_global_scale, name + " (input)")));
  return parts;
}

Json config(const EcosystemConfig& model) {
  Json json = kCompressedTensors.config(model);
  json["quant_method"] = kHalfbyteArc.name;
  json["arc_version"] = kArcVersion;
  json["halfbyte"] = to_json(model.quantization);
  const auto& activations = model.quantization.activations_of(model.quantization.tensors.begin()->second);
  if (activations && activations->scope != ActivationScope::fixed)
    json["config_groups"]["group_0"]["input_activations"]["dynamic"] = true;
  return json;
}

}  // namespace

const Ecosystem kHalfbyteArc{"halfbyte-arc", parse, parts, read, store, config, input};

}  // namespace halfbyte
