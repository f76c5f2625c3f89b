// One block's scale behind one name for all formats: which scales are worth trying, and codes and values under one of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "formats/quantized_tensor.h"

namespace halfbyte {

struct BlockScale {
  std::uint8_t code = 0;  // nvfp4: E4M3; mxfp4, mxfp8: E8M0
  float value = 0.0f;     // what a level is multiplied by; nf4, fp4, int4, int8: also what is stored
  bool divides = false;   // nf4, fp4: a short block (bnb_block.h)
};

// In the order they are tried. The first one is what quantize() takes (without 4/6 or a search of its own).
struct ScaleCandidates {
  std::array<BlockScale, 17> scales;
  int count = 0;

  std::span<const BlockScale> span() const { return {scales.data(), static_cast<std::size_t>(count)}; }
};

// A block whose candidates are to be compared, as the vector code takes it.
struct SearchBlock {
  Format format;
  const ScaleCandidates* candidates;
  const float* x;           // [padded] zeros after the block's elements
  const float* importance;  // [padded] finite
  std::int64_t padded;      // elements rounded up to a multiple of 16
};

// How blocks of a tensor with that spec, source type and (nvfp4) global scale are scaled, encoded and decoded.
class BlockCodec {
 public:
  BlockCodec(const QuantSpec& spec, DType source, float global)
      : spec_(spec), source_(source), global_(global) {}
  explicit BlockCodec(const QuantizedTensor& tensor)
      : BlockCodec(tensor.spec, tensor.source, tensor.global_scale) {}

  const QuantSpec& spec() const { return spec_; }

  // Scales for a block with that largest magnitude, c the first of them:
  //   nvfp4               codes c + 0, -1, 1, -2, 2 .. -8, 8, kept within 1..126
  //   mxfp4, mxfp8        codes c + 0, -1, 1, kept within 0..254
  //   nf4, fp4            absmax times 1, .98, .96, .94, .92, .9, .87, .84
  //   int4, int8          c times the same
  // full: not a short last block (nf4, fp4).
  ScaleCandidates candidates(float absmax, bool full) const;

  // Code nearest to x under a scale, and what a code stands for: the codecs of src/formats. nf4, fp4 under an absmax that
  // double quantization has moved to zero or below: the code of zero.
  std::uint8_t encode(float x, const BlockScale& scale) const;
  float decode(std::uint8_t code, const BlockScale& scale) const;

 private:
  QuantSpec spec_;
  DType source_;
  float global_;
};

// The scale that a tensor holds for a block, and the other way about (not with double quantization, which needs all blocks at
// once: double_quant.h).
BlockScale stored_scale(const QuantizedTensor& tensor, std::int64_t block, bool full);
void store_scale(QuantizedTensor& tensor, std::int64_t block, const BlockScale& scale);

// codes[count], one a byte, as the bytes of one row (nf4, fp4: of an even number of elements or the tensor's last ones).
void pack_codes(Format format, std::span<const std::uint8_t> codes, std::uint8_t* bytes);

}  // namespace halfbyte
