#include "checkpoint/halfbyte.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/spec_json.h"
#include "core/fail.h"
#include "formats/e4m3.h"
#include "io/text.h"

namespace halfbyte {

namespace {

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

// The oldest version of the format that can say all of this.
int oldest_version(const HalfbyteQuantization& quantization) {
  const bool own = std::ranges::any_of(quantization.tensors,
                                       [](const auto& entry) { return entry.second.own_activations; });
  const bool newer = std::ranges::any_of(quantization.inputs, [](const auto& entry) {
    return entry.second.outliers || entry.second.global_scale != 0.0f;
  });
  return own || newer ? 3 : quantization.inputs.empty() ? 1 : 2;
}

}  // namespace

Json to_json(const HalfbyteQuantization& quantization) {
  Json json = {
      {"quant_method", "halfbyte"}, {"version", oldest_version(quantization)}, {"activations", nullptr}};
  if (quantization.activations) json["activations"] = to_json(*quantization.activations);
  Json tensors = Json::object();
  for (const auto& [name, info] : quantization.tensors) {
    Json tensor = to_json(info.spec);
    tensor["shape"] = info.shape;
    tensor["dtype"] = dtype_name(info.source);
    if (!info.input.empty()) tensor["input"] = info.input;
    if (info.own_activations)
      tensor["activations"] = info.activations ? to_json(*info.activations) : Json(nullptr);
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
  if (const Json* activations = json_find(config, "activations"))
    quantization.activations = parse_activation_spec(*activations, where + ": activations");
  if (json_find(config, "inputs"))
    for (const auto& [name, input] : json_object(config, "inputs", where).items()) {
      quantization.inputs.emplace(name, parse_input_info(input, where + ": inputs: " + quote(name)));
    }
  for (const auto& [name, tensor] : json_object(config, "tensors", where).items()) {
    const std::string place = where + ": tensors: " + quote(name);
    QuantizedInfo info{.spec = parse_quant_spec(tensor, place), .shape = parse_shape(tensor, place)};
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
      info.outliers = found->second.outliers;
      info.outlier_spec = found->second.outlier_spec;
    }
    if (tensor.contains("activations")) {
      info.own_activations = true;
      if (const Json* activations = json_find(tensor, "activations"))
        info.activations = parse_activation_spec(*activations, place + ": activations");
    }
    const auto& activations = quantization.activations_of(info);
    const InputInfo* input = info.input.empty() ? nullptr : &quantization.inputs.find(info.input)->second;
    if (input && input->residual && !activations)
      fail_input("{}: its input {} has residual channels, but activations are not rounded", place,
                 quote(info.input));
    if (activations && activations->scope == ActivationScope::fixed &&
        (!input || input->global_scale == 0.0f) &&
        format_info(activations->spec.format).scale == ScaleKind::e4m3_and_global)
      fail_input("{}: activations are rounded under a static scale, but its input gives none", place);
    quantization.tensors.emplace(name, std::move(info));
  }
  return quantization;
}

QuantizedInfo main_part(const QuantizedInfo& info) {
  QuantizedInfo main = info;
  main.outliers = 0;
  if (info.outliers) main.shape[1] -= info.outliers;
  return main;
}

QuantizedInfo outlier_part(const QuantizedInfo& info) {
  QuantizedInfo part = main_part(info);
  part.spec = info.outlier_spec;
  part.shape = {info.shape[0], info.outliers};
  return part;
}

std::int64_t stored_bytes_of(const QuantizedInfo& info) {
  return quantized_bytes(info.spec, main_part(info).shape) +
         (info.outliers ? quantized_bytes(info.outlier_spec, outlier_part(info).shape) : 0);
}

std::vector<TensorSpec> part_specs(const std::string& name, const QuantizedInfo& info) {
  std::vector<TensorSpec> parts = list_parts(name, info.spec, main_part(info).shape);
  if (info.outliers)
    for (TensorSpec& part : list_parts(outlier_name(name), info.outlier_spec, outlier_part(info).shape))
      parts.push_back(std::move(part));
  return parts;
}

void for_each_part(const std::string& name, const QuantizedTensor& tensor, const PartVisitor& visit) {
  // The spans are only read from here; parts_of serves reading and writing.
  for (const Part& part : parts_of(name, const_cast<QuantizedTensor&>(tensor)))
    visit(part.spec.name, part.bytes);
}

void append_parts(SafetensorsWriter& writer, const std::string& name, const QuantizedTensor& tensor) {
  for_each_part(name, tensor, [&](const std::string& part, std::span<const std::byte> bytes) {
    writer.append(part, bytes);
  });
}

QuantizedTensor read_parts(const SafetensorsModel& files, const std::string& name,
                           const QuantizedInfo& info) {
  QuantizedTensor tensor = make_quantized(info.spec, main_part(info).shape, info.source);
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
