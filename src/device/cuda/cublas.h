// Products of unquantized matrices by cuBLAS, opened at run time: for layers that stay 16 or 32 bits wide, and to be measured
// against.
#pragma once

#include <cstdint>
#include <memory>

#include "core/dtype.h"
#include "device/cuda/device.h"

namespace halfbyte::cuda {

// out[m, rows] = A[m, columns] W[rows, columns]^T, row after row, summed in float32 (no TF32). Device pointers.
struct CublasMatmul {
  std::int64_t m = 0, rows = 0, columns = 0;  // M, N, K
  DType dtype = DType::bf16;                  // of activations and weights: bf16, f16 or f32
  const void* activations = nullptr;
  const void* weights = nullptr;
  DType out_dtype = DType::bf16;  // dtype or f32
  void* out = nullptr;
};

// What may happen between partial sums where cuBLAS splits K.
enum class CublasSums {
  float32,  // nothing
  any,      // they may be rounded to 16 bits, as PyTorch lets cuBLAS do; for comparisons of speed
};

// A cuBLAS handle of the current device and its workspace. Calls on one object must not overlap.
class Cublas {
 public:
  // Throws a device error where there is no device or no library: libcublas.so.13 or .12.
  explicit Cublas(CublasSums sums = CublasSums::float32);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  // True where the constructor would find the library. Asks once.
  static bool found();
  int version() const;  // 130000 is 13.0.0

  // Waits for nothing; may be captured in a graph, since the workspace is ours and stays. Throws bad_input for types other
  // than the above, device where cuBLAS refuses.
  void matmul(const CublasMatmul& call, Stream stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace halfbyte::cuda
