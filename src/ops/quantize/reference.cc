// Plain loops over the codecs: the meaning of quantize, one block after the other.
#include <algorithm>
#include <vector>

#include "formats/bnb_block.h"
#include "formats/fp4.h"
#include "formats/int4.h"
#include "formats/int8.h"
#include "formats/mxfp4.h"
#include "formats/mxfp8.h"
#include "formats/nf4.h"
#include "formats/packing.h"
#include "ops/quantize/op.h"

namespace halfbyte {

namespace {

// Scale and codes of one block x[count]; `full` says that it is not a short last block.
void encode_block(const Quantize& args, const float* x, std::int64_t count, bool full, std::int64_t block,
                  std::uint8_t* codes) {
  QuantizedTensor& out = *args.out;
  const QuantSpec& spec = out.spec;
  float absmax = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) absmax = std::max(absmax, abs_value(x[i]));

  auto for_each = [&](auto encode) {
    for (std::int64_t i = 0; i < count; ++i) codes[i] = encode(x[i]);
  };
  switch (spec.format) {
    case Format::nf4:
    case Format::fp4: {
      const BnbScale scale = bnb_scale(absmax, full);
      out.scales[block] = scale.stored;
      for_each([&](float v) {
        const float normalised = bnb_normalise(scale, v);
        return spec.format == Format::nf4 ? nf4_encode(normalised) : fp4_encode(normalised);
      });
      break;
    }
    case Format::nvfp4: {
      const auto encode_scale = [&](auto chosen) {
        return chosen(spec.global_scale, x, static_cast<int>(count), absmax, out.global_scale, out.source);
      };
      const std::uint8_t code =
          spec.four_six       ? encode_scale(nvfp4_encode_scale_four_six)
          : spec.scale_search ? encode_scale(nvfp4_encode_scale_search)
                              : nvfp4_encode_scale(spec.global_scale, absmax, out.global_scale, out.source);
      out.scales8[block] = code;
      const float step = nvfp4_step(spec.global_scale, code, out.global_scale);
      for_each([&](float v) { return nvfp4_encode(spec.global_scale, v, step); });
      break;
    }
    case Format::mxfp4:
    case Format::mxfp8_e4m3:
    case Format::mxfp8_e5m2: {
      const MxElement element = spec.format == Format::mxfp4        ? kMxE2m1
                                : spec.format == Format::mxfp8_e4m3 ? kMxE4m3
                                                                    : kMxE5m2;
      out.scales8[block] = mx_encode_scale(spec.mx_scale, element, absmax, out.source);
      const float scale = e8m0_decode(out.scales8[block]);
      for_each([&](float v) {
        if (spec.format == Format::mxfp4) return mxfp4_encode(spec.mx_scale, v, scale, out.source);
        if (spec.format == Format::mxfp8_e4m3) return mxfp8_e4m3_encode(spec.mx_scale, v, scale, out.source);
        return mxfp8_e5m2_encode(spec.mx_scale, v, scale, out.source);
      });
      break;
    }
    case Format::int4:
      out.scales[block] = int4_scale(absmax);
      for_each([&](float v) { return int4_encode(v, out.scales[block]); });
      break;
    case Format::int8:
      out.scales[block] = int8_scale(absmax);
      for_each([&](float v) { return int8_encode(v, out.scales[block]); });
      break;
    case Format::bf16:
      break;
  }
}

}  // namespace

bool quantize_reference(const Quantize& args) {
  QuantizedTensor& out = *args.out;
  const FormatInfo& info = format_info(out.spec.format);
  // A flat tensor is one row of all elements.
  const bool flat = info.axis == BlockAxis::flat;
  const std::int64_t rows = flat ? 1 : args.extent.rows;
  const std::int64_t columns = flat ? args.extent.elements() : args.extent.columns;
  if (columns == 0) {
    if (info.axis == BlockAxis::whole_row)
      for (float& scale : out.scales) scale = int8_scale(0.0f);
    return true;
  }
  const std::int64_t block_size = effective_block(out.spec, columns), blocks = ceil_div(columns, block_size);
  std::vector<float> x(static_cast<std::size_t>(columns));
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < columns; ++i) {
      const float value = load_element(args.values.dtype, args.values.data.data(), row * columns + i);
      if (!is_finite(value)) return false;
      x[static_cast<std::size_t>(i)] = value;
    }
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t first = b * block_size, count = std::min(block_size, columns - first);
      encode_block(args, x.data() + first, count, count == block_size, row * blocks + b,
                   codes.data() + first);
    }
    if (info.bits == 8) {
      std::copy(codes.begin(), codes.end(), out.codes.data() + row * columns);
    } else {
      pack_nibbles(flat ? NibbleOrder::high_first : NibbleOrder::low_first, codes.data(), columns,
                   out.codes.data() + row * packed_bytes(columns),
                   out.spec.format == Format::nf4 ? kNf4Zero : 0);
    }
  }
  return true;
}

}  // namespace halfbyte
