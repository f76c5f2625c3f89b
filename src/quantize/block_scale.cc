// Scales of one block: what a search tries, and the codecs of src/formats by format.
#include "quantize/block_scale.h"

#include <algorithm>

#include "formats/bnb_block.h"
#include "formats/fp4.h"
#include "formats/int4.h"
#include "formats/int8.h"
#include "formats/mxfp4.h"
#include "formats/mxfp8.h"
#include "formats/nf4.h"
#include "formats/packing.h"

namespace halfbyte {

namespace {

constexpr std::array<float, 8> kShrunk{1.0f, 0.98f, 0.96f, 0.94f, 0.92f, 0.9f, 0.87f, 0.84f};

constexpr MxElement mx_element(Format format) {
  return format == Format::mxfp4 ? kMxE2m1 : format == Format::mxfp8_e4m3 ? kMxE4m3 : kMxE5m2;
}

}  // namespace

ScaleCandidates BlockCodec::candidates(float absmax, bool full) const {
  ScaleCandidates out;
  const auto add = [&](const BlockScale& scale) {
    out.scales[static_cast<std::size_t>(out.count++)] = scale;
  };
  switch (format_info(spec_.format).scale) {
    case ScaleKind::e4m3_and_global: {
      const std::uint8_t middle = nvfp4_encode_scale(spec_.global_scale, absmax, global_, source_);
      for (int i = 0; i <= 16; ++i) {
        const std::uint8_t code = nvfp4_near_scale(middle, i % 2 ? -(i + 1) / 2 : i / 2);
        add({.code = code, .value = nvfp4_step(spec_.global_scale, code, global_)});
      }
      break;
    }
    case ScaleKind::e8m0: {
      const int middle = mx_encode_scale(spec_.mx_scale, mx_element(spec_.format), absmax, source_);
      for (const int offset : {0, -1, 1}) {
        const auto code = static_cast<std::uint8_t>(std::clamp(middle + offset, 0, 254));
        add({.code = code, .value = e8m0_decode(code)});
      }
      break;
    }
    case ScaleKind::absmax_f32:
      for (const float factor : kShrunk)
        add({.value = bnb_scale(absmax * factor, full).stored, .divides = !full});
      break;
    case ScaleKind::f32: {
      const float scale = spec_.format == Format::int4 ? int4_scale(absmax) : int8_scale(absmax);
      for (const float factor : kShrunk) add({.value = scale * factor});
      break;
    }
    case ScaleKind::none:
      break;
  }
  return out;
}

std::uint8_t BlockCodec::encode(float x, const BlockScale& scale) const {
  switch (spec_.format) {
    case Format::nf4:
      return scale.value > 0.0f ? nf4_encode(bnb_normalise(bnb_scale(scale.value, !scale.divides), x))
                                : kNf4Zero;
    case Format::fp4:
      return scale.value > 0.0f ? fp4_encode(bnb_normalise(bnb_scale(scale.value, !scale.divides), x))
                                : std::uint8_t{0};
    case Format::nvfp4:
      return nvfp4_encode(spec_.global_scale, x, scale.value);
    case Format::mxfp4:
      return mxfp4_encode(spec_.mx_scale, x, scale.value, source_);
    case Format::mxfp8_e4m3:
      return mxfp8_e4m3_encode(spec_.mx_scale, x, scale.value, source_);
    case Format::mxfp8_e5m2:
      return mxfp8_e5m2_encode(spec_.mx_scale, x, scale.value, source_);
    case Format::int4:
      return int4_encode(x, scale.value);
    case Format::int8:
      return int8_encode(x, scale.value);
    case Format::bf16:
      break;
  }
  return 0;
}

float BlockCodec::decode(std::uint8_t code, const BlockScale& scale) const {
  switch (spec_.format) {
    case Format::nf4:
      return mul_rn(nf4_decode(code), scale.value);
    case Format::fp4:
      return mul_rn(fp4_decode(code), scale.value);
    case Format::nvfp4:
      return nvfp4_decode(code, scale.value);
    case Format::mxfp4:
      return mxfp4_decode(code, scale.value);
    case Format::mxfp8_e4m3:
      return mxfp8_e4m3_decode(code, scale.value);
    case Format::mxfp8_e5m2:
      return mxfp8_e5m2_decode(code, scale.value);
    case Format::int4:
      return int4_decode(code, scale.value);
    case Format::int8:
      return int8_decode(code, scale.value);
    case Format::bf16:
      break;
  }
  return 0.0f;
}

BlockScale stored_scale(const QuantizedTensor& tensor, std::int64_t block, bool full) {
  switch (format_info(tensor.spec.format).scale) {
    case ScaleKind::e4m3_and_global: {
      const std::uint8_t code = tensor.scales8[block];
      return {.code = code, .value = nvfp4_step(tensor.spec.global_scale, code, tensor.global_scale)};
    }
    case ScaleKind::e8m0:
      return {.code = tensor.scales8[block], .value = e8m0_decode(tensor.scales8[block])};
    case ScaleKind::absmax_f32:
      return {.value = block_scale_f32(tensor, block), .divides = !full};
    case ScaleKind::f32:
      return {.value = tensor.scales[block]};
    case ScaleKind::none:
      break;
  }
  return {};
}

void store_scale(QuantizedTensor& tensor, std::int64_t block, const BlockScale& scale) {
  const ScaleKind kind = format_info(tensor.spec.format).scale;
  if (kind == ScaleKind::e4m3_and_global || kind == ScaleKind::e8m0)
    tensor.scales8[block] = scale.code;
  else
    tensor.scales[block] = scale.value;
}

void pack_codes(Format format, std::span<const std::uint8_t> codes, std::uint8_t* bytes) {
  const FormatInfo& info = format_info(format);
  if (info.bits == 8) {
    std::copy(codes.begin(), codes.end(), bytes);
    return;
  }
  pack_nibbles(info.axis == BlockAxis::flat ? NibbleOrder::high_first : NibbleOrder::low_first, codes.data(),
               static_cast<std::int64_t>(codes.size()), bytes, format == Format::nf4 ? kNf4Zero : 0);
}

}  // namespace halfbyte
