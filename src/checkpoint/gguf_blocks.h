// Rows of weights as blocks of GGUF: NVFP4 and MXFP4 repacked from codes and scales, Q4_0 and Q8_0 rounded from floats.
//
// The layouts are those of formats/ggml_blocks.h. Repacking moves bits only. Q4_0 and Q8_0 are llama.cpp's reference
// quantizers: d = (value of largest magnitude) / -8, q = trunc(x / d + 8.5) up to 15; d = absmax / 127, q = x / d rounded half
// away from zero; the reciprocal of d is taken in float32, before d is rounded to half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace halfbyte {

// codes: columns / 2 bytes, low nibble first; scales: E4M3, one a 16; columns a multiple of 64; out: 36 bytes a 64.
void pack_nvfp4_row(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                    std::span<std::byte> out);
// scales: E8M0, one a 32; columns a multiple of 32; out: 17 bytes a 32.
void pack_mxfp4_row(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                    std::span<std::byte> out);
// values a multiple of 32; out: 18 bytes a 32.
void encode_q4_0_row(std::span<const float> values, std::span<std::byte> out);
// values a multiple of 32; out: 34 bytes a 32.
void encode_q8_0_row(std::span<const float> values, std::span<std::byte> out);

}  // namespace halfbyte
