// How a CUDA dequantization is launched: pure functions of the tensor, tested without a device.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/shape.h"
#include "formats/formats.h"

namespace halfbyte::cuda {

constexpr int log2_of(std::int64_t power_of_two) {
  int log = 0;
  while ((std::int64_t{1} << log) < power_of_two) ++log;
  return log;
}

// The kernel writes 16 bytes at a time.
constexpr std::int64_t chunk_elements(DType out) { return 16 / dtype_bytes(out); }

// Elements lie in memory as in one long row, and no 16 bytes of output belong to two blocks: the fast path. Otherwise the
// last block of every row is short (or an int8 row is no multiple of 8), and the rows path takes it.
constexpr bool is_contiguous(const QuantSpec& spec, std::int64_t columns) {
  switch (format_info(spec.format).axis) {
    case BlockAxis::flat:
      return true;
    case BlockAxis::row:
      return columns % effective_block(spec, columns) == 0;
    case BlockAxis::whole_row:
      return columns % 8 == 0;
    case BlockAxis::none:
      break;
  }
  return false;
}

// FastDivide, which finds the row of an int8 element, holds for 2^31 units of 4 elements.
constexpr bool takes_fast_path(const QuantSpec& spec, std::int64_t rows, std::int64_t columns) {
  return is_contiguous(spec, columns) &&
         (spec.format != Format::int8 || rows * columns < std::int64_t{1} << 33);
}

struct LaunchShape {
  int threads = 0;
  int unroll = 0;           // chunks of 16 bytes a thread writes
  std::int64_t blocks = 0;  // of the grid
  friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

// Fastest of 30 shapes on an H200 for nf4 with double quantization at 4096, 8192 and 16384 squared, 2026-11-30.
inline constexpr int kDequantizeThreads = 512;
inline constexpr int kDequantizeUnroll = 2;

constexpr LaunchShape dequantize_shape(std::int64_t elements, DType out) {
  const std::int64_t chunks = elements / chunk_elements(out);
  const std::int64_t blocks = ceil_div(chunks, kDequantizeThreads * kDequantizeUnroll);
  return {kDequantizeThreads, kDequantizeUnroll, blocks < 1 ? 1 : blocks};
}

// Bytes that a dequantization must read and write: codes and scales once, every element once.
constexpr std::int64_t dequantize_bytes(const QuantSpec& spec, std::int64_t rows, std::int64_t columns,
                                        DType out) {
  const FormatInfo& info = format_info(spec.format);
  const std::int64_t elements = rows * columns, block = effective_block(spec, columns);
  if (elements == 0) return 0;
  const std::int64_t blocks =
      info.axis == BlockAxis::flat ? ceil_div(elements, block) : rows * ceil_div(columns, block);
  const std::int64_t codes = info.bits == 8                 ? elements
                             : info.axis == BlockAxis::flat ? ceil_div(elements, 2)
                                                            : rows * ceil_div(columns, 2);
  std::int64_t scales = blocks;  // one byte each
  if (info.scale == ScaleKind::f32 || info.scale == ScaleKind::absmax_f32) scales = 4 * blocks;
  if (spec.double_quant) scales = blocks + 4 * ceil_div(blocks, 256);
  return codes + scales + elements * dtype_bytes(out);
}

}  // namespace halfbyte::cuda
