// The product with plain weights on a CUDA device: out[M,N] = A[M,K] W[N,K]^T + bias[N], on the caller's stream.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "device/cuda/device.h"
#include "device/cuda/values.h"

namespace halfbyte::cuda {

// Every pointer is on the device. BF16 and FP16 are widened on their way, which is exact.
struct DeviceMatmulF32 {
  std::int64_t m = 0, n = 0, k = 0;
  Values activation;  // [M, K], row stride activation_stride; f32 or f16
  std::int64_t activation_stride = 0;
  const void* weight = nullptr;  // [N, K], dense
  DType dtype = DType::f32;      // of weight: f32, bf16 or f16
  const float* bias = nullptr;   // [N] or null
  bool accumulate = false;       // add to what out holds
  float* out = nullptr;          // [M, N], row stride out_stride
  std::int64_t out_stride = 0;
};

// Fused multiply-adds along K in order: the same bits in every run, and as close to the exact product as the CPU's. Returns a
// cudaError_t.
int matmul_f32(const DeviceMatmulF32& args, Stream stream);

}  // namespace halfbyte::cuda
