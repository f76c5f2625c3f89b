// Packing of 4-bit weights into tiles, and its inverse, on the host. See layout.h; cuda.h has the same on the device.
#pragma once

#include <span>

#include "formats/quantized_tensor.h"

namespace halfbyte {

// Bytes of the tiles of weights[rows, columns].
std::int64_t w4_tile_bytes(const QuantSpec& spec, std::int64_t rows, std::int64_t columns);

// tensor -> tiles[w4_tile_bytes()]. What belongs to the whole tensor (global scale; nested absmax and offset of double
// quantization) stays with the tensor.
void pack_w4(const QuantizedTensor& tensor, std::span<std::uint8_t> tiles);

// tiles -> the codes and block scales of `tensor`, which has its arrays.
void unpack_w4(std::span<const std::uint8_t> tiles, QuantizedTensor& tensor);

}  // namespace halfbyte
