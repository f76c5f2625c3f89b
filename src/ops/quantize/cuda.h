// Quantization on a CUDA device: raw device pointers in and out, on the caller's stream.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "device/cuda/device.h"
#include "formats/formats.h"
#include "ops/quantize/cuda_params.h"

namespace halfbyte::cuda {

// Parts as in formats/quantized_tensor.h, every pointer on the device. values and codes must be aligned to 16 bytes, float
// arrays to 4; parts that the format does not have may be null.
struct Quantize {
  QuantSpec spec;
  std::int64_t rows = 0, columns = 0;
  DType source = DType::bf16;    // of values: bf16, f16 or f32
  const void* values = nullptr;  // [rows, columns]
  std::uint8_t* codes = nullptr;
  std::uint8_t* scales8 = nullptr;  // nvfp4, mxfp4, mxfp8
  float* scales = nullptr;          // nf4, fp4: absmax, also under double quantization; int4, int8: scales
  float* global_scale = nullptr;    // nvfp4: [1], written, or read where keep_global_scale
  bool keep_global_scale = false;
  std::uint32_t* workspace = nullptr;  // nvfp4: [1], where global_scale is written
  int* not_finite = nullptr;           // [1], becomes 1 where values hold a NaN or an infinity; may be null
};

// The codes and scales of the codecs, bit for bit, the same in every run. The codes are worthless where values are not
// finite. Double quantization of the absmax values is double_quantize() of ops/quantize/double_quant.h, on the host: its
// offset is a sum in a fixed order. Allocates nothing, waits for nothing; throws as dequantize() does.
void quantize(const Quantize& args, Stream stream);

// What the kernels get for these arguments; also for the kernels of the benchmarks.
QuantizeParams quantize_params(const Quantize& args);

}  // namespace halfbyte::cuda
