// Quantization on a CUDA device: raw device pointers in and out, on the caller's stream.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "device/cuda/device.h"
#include "formats/formats.h"
#include "ops/quantize/cuda_params.h"

namespace halfbyte::cuda {

// Parts as in formats/quantized_tensor.h, every pointer on the device. values and codes must be aligned to 16 bytes, float
// arrays to 4, a workspace for double quantization to 8; parts that the format does not have may be null.
struct Quantize {
  QuantSpec spec;
  std::int64_t rows = 0, columns = 0;
  DType source = DType::bf16;    // of values: bf16, f16 or f32
  const void* values = nullptr;  // [rows, columns]
  std::uint8_t* codes = nullptr;
  std::uint8_t* scales8 = nullptr;  // nvfp4, mxfp4, mxfp8; double quantization: codes
  float* scales = nullptr;          // nf4, fp4: absmax, also under double quantization; int4, int8: scales
  float* nested_absmax = nullptr;   // double quantization
  float* offset = nullptr;          // double quantization: [1]
  float* global_scale = nullptr;    // nvfp4: [1], written, or read where keep_global_scale
  bool keep_global_scale = false;
  std::uint32_t* workspace = nullptr;  // [quantize_workspace(spec, keep_global_scale)]
  int* not_finite = nullptr;           // [1], becomes 1 where values hold a NaN or an infinity; may be null
};

// 32-bit words of workspace.
constexpr std::int64_t quantize_workspace(const QuantSpec& spec, bool keep_global_scale = false) {
  if (spec.double_quant) return kDoubleQuantWorkspace;
  return spec.format == Format::nvfp4 && !keep_global_scale ? 1 : 0;
}

// The codes and scales of the codecs, bit for bit, the same in every run. The codes are worthless where values are not
// finite. Under double quantization `scales` keeps the absmax values, which the caller may drop afterwards; the offset is
// that of double_quantize(). Allocates nothing, waits for nothing; throws as dequantize() does.
void quantize(const Quantize& args, Stream stream);

// What the kernels get for these arguments; also for the kernels of the benchmarks.
QuantizeParams quantize_params(const Quantize& args);
DoubleQuantParams double_quant_params(const Quantize& args);

}  // namespace halfbyte::cuda
