// Products with 4-bit weights on a CUDA device: raw device pointers, on the caller's stream.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "device/cuda/device.h"
#include "formats/formats.h"

namespace halfbyte::cuda {

// 4-bit weights W[rows, columns] packed for the tensor cores. Every pointer is on the device.
struct W4Weights {
  QuantSpec spec;
  std::int64_t rows = 0, columns = 0;    // N, K
  const std::uint8_t* tiles = nullptr;   // [w4_tile_bytes()], aligned to 16 bytes
  const float* global_scale = nullptr;   // nvfp4: [1]
  const float* nested_absmax = nullptr;  // double quantization, with map [256] and offset
  const float* map = nullptr;
  float offset = 0.0f;
};

// Codes and block scales as in formats/quantized_tensor.h -> tiles; scales8 or scales as the format has them. nvfp4 scales
// must not be negative or NaN, which no encoder here writes.
void pack_w4(const QuantSpec& spec, std::int64_t rows, std::int64_t columns, const std::uint8_t* codes,
             const std::uint8_t* scales8, const float* scales, std::uint8_t* tiles, Stream stream);

// out[m, N] = activations[m, K] W^T + bias[N], all of `dtype`, which is bf16 or f16; activations and out aligned to 16 bytes.
//   sums     float32, the same bits in every run
//   weights  with up to 16 activations (or not on Hopper): levels of nf4 and fp4 are rounded to `dtype`, those of the other
//            formats are exact there; block scales multiply sums in float32 (nvfp4: the weight, exactly). With more: the
//            weights that dequantize() gives, rounded to `dtype`. nvfp4's global scale multiplies at the end either way
struct MatmulW4A16Call {
  W4Weights weights;
  std::int64_t m = 0;
  DType dtype = DType::bf16;
  const void* activations = nullptr;
  const void* bias = nullptr;  // or null
  void* out = nullptr;
  // [matmul_w4a16_workspace()], all zero before the first call and left so that it serves the next, of any shape.
  void* workspace = nullptr;
};

// Bytes of workspace for weights[rows, columns] and up to m activations on the current device. Aligned to 256. One workspace
// serves weights of any shape for which it is large enough, one call after the other.
std::int64_t matmul_w4a16_workspace(std::int64_t m, std::int64_t rows, std::int64_t columns);

// Allocates nothing, waits for nothing. Throws as dequantize() does. Thread blocks that share K wait for each other, so calls
// must not run beside a kernel that holds multiprocessors until they have ended.
void matmul_w4a16(const MatmulW4A16Call& call, Stream stream);

}  // namespace halfbyte::cuda
