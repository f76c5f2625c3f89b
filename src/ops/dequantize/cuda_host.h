// Dequantization of a tensor in host memory by way of a CUDA device: copies in, runs, times, copies back. For the command
// line and for checks; where the tensor lives on the device already, use ops/dequantize/cuda.h.
#pragma once

#include <span>

#include "core/dtype.h"
#include "formats/formats.h"

namespace halfbyte::cuda {

// As cuda::Dequantize, but in host memory. Parts that the format does not have are empty.
struct HostDequantize {
  QuantSpec spec;
  std::int64_t rows = 0, columns = 0;
  std::span<const std::uint8_t> codes, scales8;
  std::span<const float> scales, nested_absmax, map;
  float offset = 0.0f;
  std::int64_t group = 256;
  float global_scale = 1.0f;
  DType dtype = DType::bf16;
  std::span<std::byte> out;  // rows * columns * dtype_bytes(dtype)
};

struct DeviceTime {
  double milliseconds = 0;  // median of the kernel alone, the L2 overwritten before each repeat
  // Ceilings measured beside it, 0 where not asked: GB/s, read and written, of a device-to-device copy, and the median of the
  // fastest kernel that moves the same bytes without arithmetic, of which there is none for ragged rows (0).
  double copy_gbps = 0;
  double bytes_milliseconds = 0;
};

DeviceTime dequantize_through_device(const HostDequantize& args, int repeats, bool measure_ceilings);

}  // namespace halfbyte::cuda
