// Tensor types of GGUF files, decoded to float32: one row a type, whole blocks at a time.
//
//   type    values  block bytes, in order ("half" is fp16)                      value of code q, each product
//   rounded Q4_0        32  half d; 16 bytes of nibbles                                 d * (q - 8) Q4_1 32
//   half d; half m; 16 bytes of nibbles                         d * q + m Q5_0        32  half d; u32 fifth
//   bits; 16 bytes of nibbles                 d * (q - 16) Q5_1        32  half d; half m; u32 fifth bits; 16
//   bytes of nibbles         d * q + m Q8_0        32  half d; 32 int8 d * q Q4_K       256  half d; half
//   dmin; 12 bytes of 6-bit scales; 128 of nibbles (d * sc) * q - dmin * m Q5_K       256  the same with 32
//   bytes of fifth bits before the nibbles     (d * sc) * q - dmin * m Q6_K       256  128 bytes of low
//   nibbles; 64 of high pairs; 16 int8 sc; half d     (d * sc) * (q - 32) MXFP4       32  e; 16 bytes of
//   nibbles                                      2^(e - 128) * kv[q] NVFP4       64  4 scales UE4M3; 4 times
//   8 bytes of nibbles                  (scale / 2) * kv[q]
//
//   nibbles: byte j holds element j low and element j + (half the block) high; kv = 0 1 2 3 4 6 8 12 and
//   their negatives source: ggml-common.h and ggml-quants.c of ggml 0.25; golden data from gguf-py 0.19 and
//   libggml-base 0.25.3
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace halfbyte {

struct GgmlDecoder {
  std::uint32_t id;  // as in a GGUF file
  std::string_view name;
  std::int64_t block_values, block_bytes;
  // values: blocks * block_values floats; bytes: blocks * block_bytes, any alignment.
  void (*decode)(const std::byte* bytes, std::int64_t blocks, float* values);
};

std::span<const GgmlDecoder> ggml_decoders();
const GgmlDecoder* find_ggml_decoder(std::uint32_t id);  // nullptr for types without a row

}  // namespace halfbyte
