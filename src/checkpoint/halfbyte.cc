#include "checkpoint/halfbyte.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "formats/e4m3.h"
#include "io/text.h"

namespace halfbyte {

namespace {

Json spec_to_json(const QuantSpec& spec) {
  const FormatInfo& info = format_info(spec.format);
  Json json = {{"format", info.name}};
  if (info.default_block != 0) json["block_size"] = effective_block(spec, 0);
  if (spec.double_quant) json["double_quant"] = true;
  if (info.scale == ScaleKind::e4m3_and_global)
    json["global_scale"] = global_scale_rule_name(spec.global_scale);
  if (info.scale == ScaleKind::e8m0) json["mx_scale"] = mx_scale_rule_name(spec.mx_scale);
  if (spec.four_six) json["four_six"] = true;
  return json;
}

QuantSpec parse_spec(const Json& json, const std::string& where) {
  QuantSpec spec;
  spec.format = format_from_name(json_string(json, "format", where));
  spec.block_size = json_optional_int64(json, "block_size", where).value_or(0);
  spec.double_quant = json_optional_bool(json, "double_quant", where).value_or(false);
  spec.four_six = json_optional_bool(json, "four_six", where).value_or(false);
  if (const auto rule = json_optional_string(json, "global_scale", where))
    spec.global_scale = global_scale_rule_from_name(*rule);
  if (const auto rule = json_optional_string(json, "mx_scale", where))
    spec.mx_scale = mx_scale_rule_from_name(*rule);
  validate(spec);
  return spec;
}

Shape parse_shape(const Json& json, const std::string& where) {
  Shape shape;
  for (const Json& extent : json_array(json, "shape", where)) {
    if (!extent.is_number_integer() || extent < 0)
      fail_input("{}: shape must list extents of 0 or more", where);
    shape.push_back(extent.get<std::int64_t>());
  }
  extent_of(shape);  // throws where the count overflows
  return shape;
}

// One stored array of a quantized tensor: where it lies in the file and in memory.
struct Part {
  TensorSpec spec;
  std::span<std::byte> bytes;
};

// Names, types and shapes of the arrays that a tensor of this kind is stored as, in the order of parts_of.
std::vector<TensorSpec> list_parts(const std::string& name, const QuantSpec& spec,
                                   const Shape& tensor_shape) {
  const FormatInfo& info = format_info(spec.format);
  const PartSizes sizes = part_sizes(spec, tensor_shape);
  const std::int64_t rows = extent_of(tensor_shape).rows;
  // Arrays of a row-blocked format are matrices; their width follows from their length.
  const auto shape = [&](std::int64_t size) {
    return info.axis != BlockAxis::flat ? Shape{rows, rows ? size / rows : 0} : Shape{size};
  };
  const DType scale8 = info.scale == ScaleKind::e4m3_and_global ? DType::f8_e4m3 : DType::u8;
  std::vector<TensorSpec> parts{{name + ".codes", DType::u8, shape(sizes.codes)}};
  if (sizes.scales8) parts.push_back({name + ".scales", scale8, shape(sizes.scales8)});
  if (sizes.scales) parts.push_back({name + ".scales", DType::f32, shape(sizes.scales)});
  if (info.scale == ScaleKind::e4m3_and_global) parts.push_back({name + ".global_scale", DType::f32, {}});
  if (spec.double_quant) {
    parts.push_back({name + ".nested_absmax", DType::f32, {sizes.nested_absmax}});
    parts.push_back({name + ".offset", DType::f32, {}});
  }
  return parts;
}

std::vector<Part> parts_of(const std::string& name, QuantizedTensor& tensor) {
  std::vector<std::span<std::byte>> bytes{std::as_writable_bytes(tensor.codes.span())};
  if (tensor.scales8.size()) bytes.push_back(std::as_writable_bytes(tensor.scales8.span()));
  if (tensor.scales.size()) bytes.push_back(std::as_writable_bytes(tensor.scales.span()));
  if (format_info(tensor.spec.format).scale == ScaleKind::e4m3_and_global)
    bytes.push_back(std::as_writable_bytes(std::span(&tensor.global_scale, 1)));
  if (tensor.spec.double_quant) {
    bytes.push_back(std::as_writable_bytes(tensor.nested_absmax.span()));
    bytes.push_back(std::as_writable_bytes(std::span(&tensor.offset, 1)));
  }
  std::vector<TensorSpec> specs = list_parts(name, tensor.spec, tensor.shape);
  HB_DCHECK(specs.size() == bytes.size());
  std::vector<Part> parts;
  for (std::size_t i = 0; i < specs.size(); ++i) parts.push_back({std::move(specs[i]), bytes[i]});
  return parts;
}

void check_scales(const QuantizedTensor& tensor, const std::string& file, const std::string& name) {
  const auto refuse = [&](std::string_view part, std::int64_t index, double value) {
    fail_input(
        "{}: {} holds {} at {}, expected a finite number of 0 or more; the file is damaged or was not "
        "written by halfbyte",
        file, quote(name + "." + std::string(part)), value, index);
  };
  const auto check = [&](std::string_view part, const Array<float>& values) {
    for (std::int64_t i = 0; i < values.size(); ++i)
      if (!(values[i] >= 0) || std::isinf(values[i])) refuse(part, i, static_cast<double>(values[i]));
  };
  check("scales", tensor.scales);
  check("nested_absmax", tensor.nested_absmax);
  if (!std::isfinite(tensor.offset)) refuse("offset", 0, static_cast<double>(tensor.offset));
  if (!(tensor.global_scale > 0) || std::isinf(tensor.global_scale))
    refuse("global_scale", 0, static_cast<double>(tensor.global_scale));
  const ScaleKind kind = format_info(tensor.spec.format).scale;
  for (std::int64_t i = 0; i < tensor.scales8.size(); ++i) {
    if (kind == ScaleKind::e4m3_and_global && tensor.scales8[i] > 0x7E)
      refuse("scales", i, static_cast<double>(e4m3_decode(tensor.scales8[i])));
    if (kind == ScaleKind::e8m0 && tensor.scales8[i] == 0xFF) refuse("scales", i, std::nan(""));
  }
}

}  // namespace

Json to_json(const HalfbyteQuantization& quantization) {
  Json json = {{"quant_method", "halfbyte"},
               {"version", quantization.inputs.empty() ? 1 : kHalfbyteVersion},
               {"activations", nullptr}};
  if (quantization.activations) {
    json["activations"] = spec_to_json(quantization.activations->spec);
    json["activations"]["scope"] =
        quantization.activations->scope == ActivationScope::tensor ? "tensor" : "token";
  }
  Json tensors = Json::object();
  for (const auto& [name, info] : quantization.tensors) {
    Json tensor = spec_to_json(info.spec);
    tensor["shape"] = info.shape;
    tensor["dtype"] = dtype_name(info.source);
    if (!info.input.empty()) tensor["input"] = info.input;
    tensors[name] = std::move(tensor);
  }
  json["tensors"] = std::move(tensors);
  for (const auto& [name, info] : quantization.inputs) json["inputs"][name] = to_json(info);
  return json;
}

HalfbyteQuantization parse_halfbyte_quantization(const Json& config, const std::string& where) {
  const std::int64_t version = json_int64(config, "version", where);
  if (version < 1 || version > kHalfbyteVersion)
    fail(ErrorKind::unsupported,
         "{}: version {} of the halfbyte format, this build reads up to {}; use a newer halfbyte", where,
         version, kHalfbyteVersion);
  HalfbyteQuantization quantization;
  if (const Json* activations = json_find(config, "activations")) {
    const std::string place = where + ": activations";
    ActivationSpec spec{.spec = parse_spec(*activations, place)};
    const std::string scope = json_string(*activations, "scope", place);
    if (scope != "tensor" && scope != "token")
      fail_input("{}: scope is {}, expected \"tensor\" or \"token\"", place, quote(scope));
    spec.scope = scope == "tensor" ? ActivationScope::tensor : ActivationScope::token;
    quantization.activations = spec;
  }
  if (json_find(config, "inputs"))
    for (const auto& [name, input] : json_object(config, "inputs", where).items()) {
      const InputInfo info = parse_input_info(input, where + ": inputs: " + quote(name));
      if (info.residual && !quantization.activations)
        fail_input("{}: inputs: {} has residual channels, but activations are not rounded", where,
                   quote(name));
      quantization.inputs.emplace(name, info);
    }
  for (const auto& [name, tensor] : json_object(config, "tensors", where).items()) {
    const std::string place = where + ": tensors: " + quote(name);
    QuantizedInfo info{.spec = parse_spec(tensor, place), .shape = parse_shape(tensor, place)};
    const std::string dtype = json_string(tensor, "dtype", place);
    const auto source = dtype_from_name(dtype);
    if (source != DType::f32 && source != DType::bf16 && source != DType::f16)
      fail_input("{}: dtype is {}, expected F32, BF16 or F16", place, quote(dtype));
    info.source = *source;
    if (const auto input = json_optional_string(tensor, "input", place)) {
      const auto found = quantization.inputs.find(*input);
      if (found == quantization.inputs.end())
        fail_input("{}: input {} is not described under inputs", place, quote(*input));
      if (info.shape.size() != 2 || info.shape[1] != found->second.width)
        fail_input("{}: shape is {}, but its input {} has a width of {}", place, to_string(info.shape),
                   quote(*input), found->second.width);
      info.input = *input;
    }
    quantization.tensors.emplace(name, std::move(info));
  }
  return quantization;
}

std::vector<TensorSpec> part_specs(const std::string& name, const QuantizedInfo& info) {
  return list_parts(name, info.spec, info.shape);
}

void append_parts(SafetensorsWriter& writer, const std::string& name, const QuantizedTensor& tensor) {
  // The spans are only read from here; parts_of serves reading and writing.
  for (const Part& part : parts_of(name, const_cast<QuantizedTensor&>(tensor)))
    writer.append(part.spec.name, part.bytes);
}

QuantizedTensor read_parts(const SafetensorsModel& files, const std::string& name,
                           const QuantizedInfo& info) {
  QuantizedTensor tensor = make_quantized(info.spec, info.shape, info.source);
  std::string file;
  for (const Part& part : parts_of(name, tensor)) {
    const TensorView* stored = files.find(part.spec.name);
    if (!stored)
      fail_input("{}: {} is missing, needed for {} ({}); the file is incomplete", files.path(),
                 quote(part.spec.name), quote(name), to_string(info.spec));
    file = files.file_of(part.spec.name).path();
    if (stored->dtype != part.spec.dtype || stored->shape != part.spec.shape)
      fail_input("{}: {} is {} {}, expected {} {} ({} of shape {})", file, quote(part.spec.name),
                 dtype_name(stored->dtype), to_string(stored->shape), dtype_name(part.spec.dtype),
                 to_string(part.spec.shape), to_string(info.spec), to_string(info.shape));
    std::memcpy(part.bytes.data(), stored->data.data(), part.bytes.size());
  }
  check_scales(tensor, file, name);
  return tensor;
}

}  // namespace halfbyte
