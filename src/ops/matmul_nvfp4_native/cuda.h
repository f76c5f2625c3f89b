// Products of NVFP4 activations with NVFP4 weights on tensor cores that take E2M1 operands with block scales (Blackwell: sm_100a,
// sm_120a), by cuBLASLt, which is opened at run time. Nobody has run it on such a device yet.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cuda/device.h"

namespace halfbyte::cuda {

// out[m, N] = alpha * A[m, K] W[N, K]^T in BF16, summed in float32. Device pointers, aligned to 16 bytes. K, with the residual
// channels where there are some, a multiple of 32; N of 8.
struct NativeNvfp4Matmul {
  std::int64_t m = 0, rows = 0, columns = 0;  // M, N, K
  const std::uint8_t* activations = nullptr;  // codes, [m, K / 2], low nibble first
  const std::uint8_t* activation_scales =
      nullptr;  // E4M3 in 128x4 tiles (formats/swizzle.h), [swizzled_bytes(m, K / 16)]
  const std::uint8_t* weights = nullptr;        // codes, [N, K / 2]
  const std::uint8_t* weight_scales = nullptr;  // [swizzled_bytes(N, K / 16)]
  const float* alpha = nullptr;                 // [1]: the product of both global scales
  void* out = nullptr;                          // [m, N]
};

// Throws bad_input for shapes and pointers that cannot be right.
void check_native_nvfp4(const NativeNvfp4Matmul& call);

// A cuBLASLt handle of the current device and its workspace. Calls on one object must not overlap.
class NativeNvfp4 {
 public:
  // Throws a device error where there is no device or no library: libcublasLt.so.13 or .12.
  NativeNvfp4();
  ~NativeNvfp4();
  NativeNvfp4(const NativeNvfp4&) = delete;
  NativeNvfp4& operator=(const NativeNvfp4&) = delete;

  // Waits for nothing. Throws unsupported on devices without tensor cores for FP4, and where cuBLASLt has no kernel for
  // this product.
  void matmul(const NativeNvfp4Matmul& call, Stream stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether the current device has tensor cores for FP4.
bool has_fp4_tensor_cores();

}  // namespace halfbyte::cuda
