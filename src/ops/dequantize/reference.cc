// One element at a time through the codecs: the meaning of dequantize.
#include "formats/fp4.h"
#include "formats/int4.h"
#include "formats/int8.h"
#include "formats/mxfp4.h"
#include "formats/mxfp8.h"
#include "formats/nf4.h"
#include "formats/packing.h"
#include "ops/dequantize/op.h"

namespace halfbyte {

namespace {

float element(const QuantizedTensor& tensor, std::int64_t columns, std::int64_t index) {
  const QuantSpec& spec = tensor.spec;
  const std::uint8_t* codes = tensor.codes.data();
  const std::int64_t block_size = effective_block(spec, columns);
  const std::int64_t row = index / columns, column = index % columns;
  auto row_nibble = [&] {
    return nibble(NibbleOrder::low_first, codes + row * packed_bytes(columns), column);
  };
  auto row_block = [&] { return row * ceil_div(columns, block_size) + column / block_size; };
  switch (spec.format) {
    case Format::nf4:
      return mul_rn(nf4_decode(nibble(NibbleOrder::high_first, codes, index)),
                    block_scale_f32(tensor, index / block_size));
    case Format::fp4:
      return mul_rn(fp4_decode(nibble(NibbleOrder::high_first, codes, index)),
                    block_scale_f32(tensor, index / block_size));
    case Format::nvfp4:
      return nvfp4_decode(row_nibble(),
                          nvfp4_step(spec.global_scale, tensor.scales8[row_block()], tensor.global_scale));
    case Format::mxfp4:
      return mxfp4_decode(row_nibble(), e8m0_decode(tensor.scales8[row_block()]));
    case Format::mxfp8_e4m3:
      return mxfp8_e4m3_decode(codes[index], e8m0_decode(tensor.scales8[row_block()]));
    case Format::mxfp8_e5m2:
      return mxfp8_e5m2_decode(codes[index], e8m0_decode(tensor.scales8[row_block()]));
    case Format::int4:
      return int4_decode(row_nibble(), tensor.scales[row_block()]);
    case Format::int8:
      return int8_decode(codes[index], tensor.scales[row]);
    case Format::bf16:
      return bf16_decode(static_cast<std::uint16_t>(codes[2 * index] | codes[2 * index + 1] << 8));
  }
  return 0.0f;
}

}  // namespace

void dequantize_reference(const Dequantize& args) {
  for (std::int64_t i = args.first; i < args.last; ++i)
    args.out[i - args.first] = element(*args.tensor, args.columns, i);
}

}  // namespace halfbyte
