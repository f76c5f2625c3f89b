// To FP16 and back: a thread an element.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "device/cuda/values.cuh"
#include "ops/narrow/cuda.h"

namespace halfbyte::cuda {

namespace {

constexpr int kThreads = 256;

__device__ float scaled(float x, const RowScale& scale, std::int64_t row) {
  if (!scale.scale) return x * scale.also;
  const float factor = scale.scale[scale.of_rows ? row : 0];
  return (scale.inverse ? x / factor : x * factor) * scale.also;
}

__global__ void __launch_bounds__(kThreads) narrow(const __grid_constant__ ToFp16 p) {
  const std::int64_t row = blockIdx.x, column = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= p.columns) return;
  store_value({p.out, DType::f16}, row * p.columns + column,
              scaled(value_at(p.x, row * p.x_stride + column), p.scale, row));
}

__global__ void __launch_bounds__(kThreads) widen(const __grid_constant__ FromFp16 p) {
  const std::int64_t row = blockIdx.x, column = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= p.columns) return;
  const std::int64_t i = row * p.columns + column;
  p.out[i] = scaled(value_at({p.x, DType::f16}, i), p.scale, row) + (p.bias ? p.bias[column] : 0.0f);
}

dim3 grid(std::int64_t rows, std::int64_t columns) {
  return {static_cast<unsigned>(rows), static_cast<unsigned>(ceil_div(columns, kThreads))};
}

}  // namespace

int to_fp16(const ToFp16& args, Stream stream) {
  if (args.rows == 0) return cudaSuccess;
  narrow<<<grid(args.rows, args.columns), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

int from_fp16(const FromFp16& args, Stream stream) {
  if (args.rows == 0) return cudaSuccess;
  widen<<<grid(args.rows, args.columns), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
