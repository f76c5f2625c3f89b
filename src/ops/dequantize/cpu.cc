// dequantize on the CPU: one step per block, levels from tables of bytes: two levels for a byte of nibbles,
// one for a byte of an 8-bit format.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/fail.h"
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

using Pairs = std::array<float, 512>;  // levels 2b and 2b + 1 of byte b, in the order of the elements
using Bytes = std::array<float, 256>;

template <class Decode>
Pairs make_pairs(NibbleOrder order, Decode decode) {
  Pairs pairs{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto b = static_cast<std::uint8_t>(byte);
    pairs[2 * byte] = decode(nibble(order, &b, 0));
    pairs[2 * byte + 1] = decode(nibble(order, &b, 1));
  }
  return pairs;
}

template <class Decode>
Bytes make_bytes(Decode decode) {
  Bytes bytes{};
  for (std::size_t byte = 0; byte < 256; ++byte) bytes[byte] = decode(static_cast<std::uint8_t>(byte));
  return bytes;
}

const Pairs& pairs_of(Format format) {
  static const Pairs nf4 = make_pairs(NibbleOrder::high_first, nf4_decode);
  static const Pairs fp4 = make_pairs(NibbleOrder::high_first, fp4_decode);
  static const Pairs e2m1 = make_pairs(NibbleOrder::low_first, e2m1_decode);
  static const Pairs int4 = make_pairs(
      NibbleOrder::low_first, [](std::uint8_t code) { return static_cast<float>(int4_level(code)); });
  return format == Format::nf4 ? nf4 : format == Format::fp4 ? fp4 : format == Format::int4 ? int4 : e2m1;
}

const Bytes& bytes_of(Format format) {
  static const Bytes e4m3 = make_bytes(e4m3_decode);
  static const Bytes e5m2 = make_bytes(e5m2_decode);
  static const Bytes int8 =
      make_bytes([](std::uint8_t code) { return static_cast<float>(int8_level(code)); });
  return format == Format::mxfp8_e4m3 ? e4m3 : format == Format::mxfp8_e5m2 ? e5m2 : int8;
}

float step_of(const QuantizedTensor& tensor, std::int64_t block) {
  switch (format_info(tensor.spec.format).scale) {
    case ScaleKind::e4m3_and_global:
      return nvfp4_step(tensor.spec.global_scale, tensor.scales8[block], tensor.global_scale);
    case ScaleKind::e8m0:
      return e8m0_decode(tensor.scales8[block]);
    default:
      return block_scale_f32(tensor, block);
  }
}

// Elements [at, at + count) of packed nibbles that begin at `codes`, all of one block.
void decode_nibbles(const Pairs& pairs, const std::uint8_t* codes, std::int64_t at, std::int64_t count,
                    float step, float* out) {
  codes += at / 2;
  if (at % 2 && count > 0) {
    *out++ = pairs[2 * std::size_t{*codes++} + 1] * step;
    --count;
  }
  for (std::int64_t i = 0; i < count / 2; ++i) {
    const float* pair = &pairs[2 * std::size_t{codes[i]}];
    out[2 * i] = pair[0] * step;
    out[2 * i + 1] = pair[1] * step;
  }
  if (count % 2) out[count - 1] = pairs[2 * std::size_t{codes[count / 2]}] * step;
}

// Elements [at, end) of one row (a flat tensor is one row) whose codes begin at `codes` and blocks at
// `block`.
void decode_run(const QuantizedTensor& tensor, std::int64_t block_size, const std::uint8_t* codes,
                std::int64_t block, std::int64_t at, std::int64_t end, float* out) {
  const Format format = tensor.spec.format;
  const bool nibbles = format_info(format).bits == 4;
  const Pairs& pairs = pairs_of(format);
  const Bytes& bytes = bytes_of(format);
  while (at < end) {
    const std::int64_t stop = std::min(end, (at / block_size + 1) * block_size);
    const float step = step_of(tensor, block + at / block_size);
    if (nibbles)
      decode_nibbles(pairs, codes, at, stop - at, step, out);
    else
      for (std::int64_t i = at; i < stop; ++i) out[i - at] = bytes[codes[i]] * step;
    out += stop - at;
    at = stop;
  }
}

}  // namespace

void dequantize_cpu(const Dequantize& args) {
  const QuantizedTensor& tensor = *args.tensor;
  const FormatInfo& info = format_info(tensor.spec.format);
  if (info.axis == BlockAxis::none) {
    const std::uint8_t* codes = tensor.codes.data();
    for (std::int64_t i = args.first; i < args.last; ++i)
      args.out[i - args.first] =
          bf16_decode(static_cast<std::uint16_t>(codes[2 * i] | codes[2 * i + 1] << 8));
    return;
  }
  const std::int64_t block_size = effective_block(tensor.spec, args.columns);
  if (info.axis == BlockAxis::flat) {
    decode_run(tensor, block_size, tensor.codes.data(), 0, args.first, args.last, args.out);
    return;
  }
  const std::int64_t row_bytes = info.bits == 8 ? args.columns : packed_bytes(args.columns);
  const std::int64_t row_blocks = ceil_div(args.columns, block_size);
  float* out = args.out;
  for (std::int64_t at = args.first; at < args.last;) {
    const std::int64_t row = at / args.columns;
    const std::int64_t stop = std::min(args.last, (row + 1) * args.columns);
    decode_run(tensor, block_size, tensor.codes.data() + row * row_bytes, row * row_blocks,
               at - row * args.columns, stop - row * args.columns, out);
    out += stop - at;
    at = stop;
  }
}

}  // namespace halfbyte
