// A quantized tensor in memory: its codes, its scales in whichever parts its format uses, and their sizes.
//
// A tensor of any rank counts as rows x columns: columns is the last extent, rows the product of the others.
//   codes   nf4, fp4            one run of all elements, high nibble first, [ceil(elements / 2)]
//           nvfp4, mxfp4, int4  each row on its own, low nibble first, [rows, ceil(columns / 2)]
//           mxfp8, int8         one byte an element, [rows, columns]
//           bf16                two bytes an element, little-endian
//   blocks  nf4, fp4            ceil(elements / block); the last one may be short
//           nvfp4, mxfp4, mxfp8, int4   [rows, ceil(columns / block)]; the last one of each row may be short
//           int8                one a row
// Ragged tails: a short block has a scale of its own, taken over its own elements, and the nibble after the
// last element of an odd row is 0 (of an odd nf4 tensor 7, its zero). Nothing is padded to whole blocks.
#pragma once

#include "core/dtype.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "formats/dynamic8.h"
#include "formats/formats.h"

namespace halfbyte {

struct QuantizedTensor {
  QuantSpec spec;
  Shape shape;
  DType source = DType::f32;  // type of the tensor before: f32, bf16 or f16

  Array<std::uint8_t> codes;
  Array<std::uint8_t> scales8;  // one a block. nvfp4: E4M3; mxfp4, mxfp8: E8M0; double quantization: codes
  Array<float> scales;          // nf4, fp4: absmax, one a block; int4: one a block; int8: one a row
  Array<float> nested_absmax;   // double quantization: one for 256 blocks
  float offset = 0.0f;          // double quantization
  float global_scale = 1.0f;    // nvfp4: a factor, but a divisor under the rule compressed_tensors (nvfp4.h)
};

struct Extent {
  std::int64_t rows = 1, columns = 1;
  std::int64_t elements() const { return rows * columns; }
};

// Rows and columns of a shape. Throws bad_input where the element count overflows or an extent is negative.
Extent extent_of(const Shape& shape);

// Lengths of the arrays of a QuantizedTensor (elements of each array, not bytes).
struct PartSizes {
  std::int64_t codes = 0, scales8 = 0, scales = 0, nested_absmax = 0;
  std::int64_t blocks = 0;  // scales before double quantization
};
PartSizes part_sizes(const QuantSpec& spec, const Shape& shape);

// Bytes of all parts, global scale and offset included.
std::int64_t quantized_bytes(const QuantSpec& spec, const Shape& shape);

// 8 * quantized_bytes / elements: 4.5 for a large nvfp4 tensor. 0 for an empty one.
double bits_per_weight(const QuantSpec& spec, const Shape& shape);

// A tensor with arrays of the right length, not filled in. Validates the spec.
QuantizedTensor make_quantized(const QuantSpec& spec, const Shape& shape, DType source);

// Throws bad_input where an array has not the length that spec and shape ask for, with `name` in the message.
void check_parts(const QuantizedTensor& tensor, std::string_view name);

// The float32 absmax (nf4, fp4, doubly quantized or not) or scale (int4, int8) of a block.
inline float block_scale_f32(const QuantizedTensor& tensor, std::int64_t block) {
  if (!tensor.spec.double_quant) return tensor.scales[block];
  return dynamic8_decode(kDynamic8Map[tensor.scales8[block]], tensor.nested_absmax[block / kDynamic8Group],
                         tensor.offset);
}

}  // namespace halfbyte
