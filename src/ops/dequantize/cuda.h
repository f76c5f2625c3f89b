// Dequantization on a CUDA device: raw device pointers in, raw device pointer out, on the caller's stream.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "device/cuda/device.h"
#include "formats/formats.h"
#include "ops/dequantize/params.h"

namespace halfbyte::cuda {

// Parts as in formats/quantized_tensor.h, every pointer on the device. codes and out must be aligned to 16 bytes, float
// arrays to 4; parts that the format does not have may be null.
struct Dequantize {
  QuantSpec spec;
  std::int64_t rows = 0, columns = 0;
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales8 = nullptr;  // block scales of nvfp4, mxfp4, mxfp8; codes of double quantization
  const float* scales = nullptr;          // absmax of nf4, fp4; scales of int4, int8
  const float* nested_absmax = nullptr;   // double quantization, with map, offset and group
  const float* map = nullptr;             // [256]
  float offset = 0.0f;
  std::int64_t group = 256;             // blocks that share a nested absmax, a power of two
  const float* global_scale = nullptr;  // nvfp4, [1]
  DType dtype = DType::bf16;            // of out: bf16, f16 or f32
  void* out = nullptr;                  // [rows, columns]
};

// value = level * scale as the codec of the format has it, bit for bit; only the payload of a NaN may differ. Allocates
// nothing, waits for nothing. Throws bad_input for arguments that cannot be right (a misaligned or missing pointer), and
// device where the launch is refused.
void dequantize(const Dequantize& args, Stream stream);

// What the kernels get for these arguments; also for the kernels of the benchmarks.
DequantizeParams dequantize_params(const Dequantize& args);

}  // namespace halfbyte::cuda
