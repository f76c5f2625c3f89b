// Sizes of the parts of a quantized tensor, and the check that a tensor has them.
#include "formats/quantized_tensor.h"

#include "core/fail.h"
#include "formats/packing.h"

namespace halfbyte {

Extent extent_of(const Shape& shape) {
  if (!checked_count(shape))
    fail_input("shape {} has a negative extent or too many elements", to_string(shape));
  Extent extent;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) extent.rows *= shape[i];
  if (!shape.empty()) extent.columns = shape.back();
  return extent;
}

PartSizes part_sizes(const QuantSpec& spec, const Shape& shape) {
  const Extent extent = extent_of(shape);
  const FormatInfo& info = format_info(spec.format);
  const std::int64_t block = effective_block(spec, extent.columns);
  PartSizes sizes;
  if (info.bits == 8) sizes.codes = extent.elements();
  if (info.bits == 16) sizes.codes = 2 * extent.elements();
  if (info.bits == 4)
    sizes.codes = info.axis == BlockAxis::flat ? packed_bytes(extent.elements())
                                               : extent.rows * packed_bytes(extent.columns);
  switch (info.axis) {
    case BlockAxis::flat:
      sizes.blocks = ceil_div(extent.elements(), block);
      break;
    case BlockAxis::row:
      sizes.blocks = extent.rows * ceil_div(extent.columns, block);
      break;
    case BlockAxis::whole_row:
      sizes.blocks = extent.rows;
      break;
    case BlockAxis::none:
      break;
  }
  if (info.scale == ScaleKind::e4m3_and_global || info.scale == ScaleKind::e8m0 || spec.double_quant)
    sizes.scales8 = sizes.blocks;
  else
    sizes.scales = sizes.blocks;
  if (spec.double_quant) sizes.nested_absmax = ceil_div(sizes.blocks, kDynamic8Group);
  return sizes;
}

std::int64_t quantized_bytes(const QuantSpec& spec, const Shape& shape) {
  const PartSizes sizes = part_sizes(spec, shape);
  const bool one_more = spec.format == Format::nvfp4 || spec.double_quant;
  return sizes.codes + sizes.scales8 + 4 * (sizes.scales + sizes.nested_absmax + (one_more ? 1 : 0));
}

double bits_per_weight(const QuantSpec& spec, const Shape& shape) {
  const std::int64_t elements = extent_of(shape).elements();
  return elements ? 8.0 * static_cast<double>(quantized_bytes(spec, shape)) / static_cast<double>(elements)
                  : 0.0;
}

QuantizedTensor make_quantized(const QuantSpec& spec, const Shape& shape, DType source) {
  validate(spec);
  const PartSizes sizes = part_sizes(spec, shape);
  QuantizedTensor tensor;
  tensor.spec = spec;
  tensor.shape = shape;
  tensor.source = source;
  tensor.codes = Array<std::uint8_t>(sizes.codes);
  tensor.scales8 = Array<std::uint8_t>(sizes.scales8);
  tensor.scales = Array<float>(sizes.scales);
  tensor.nested_absmax = Array<float>(sizes.nested_absmax);
  return tensor;
}

void check_parts(const QuantizedTensor& tensor, std::string_view name) {
  validate(tensor.spec);
  const PartSizes sizes = part_sizes(tensor.spec, tensor.shape);
  auto check = [&](std::string_view part, std::int64_t found, std::int64_t expected) {
    if (found != expected)
      fail_input(
          "{}: {} holds {} entries, expected {} for {} of shape {}; was it written with another block size?",
          name, part, found, expected, to_string(tensor.spec), to_string(tensor.shape));
  };
  check("codes", tensor.codes.size(), sizes.codes);
  check("8-bit scales", tensor.scales8.size(), sizes.scales8);
  check("float32 scales", tensor.scales.size(), sizes.scales);
  check("nested_absmax", tensor.nested_absmax.size(), sizes.nested_absmax);
}

}  // namespace halfbyte
