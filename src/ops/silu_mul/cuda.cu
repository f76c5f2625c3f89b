// SiLU times up: a thread an element.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "device/cuda/early.cuh"
#include "device/cuda/values.cuh"
#include "ops/silu_mul/cuda.h"

namespace halfbyte::cuda {

namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) silu_mul_elements(const __grid_constant__ DeviceSiluMul p) {
  const std::int64_t row = blockIdx.x, column = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  let_next_kernel_start();
  wait_for_kernel_before();
  if (column >= p.columns) return;
  const float gate = value_at(p.gate, row * p.stride + column), up = value_at(p.up, row * p.stride + column);
  // exp(88.8) is infinite
  store_value(p.out, row * p.columns + column, gate / (1.0f + expf(fminf(-gate, 87.0f))) * up);
}

}  // namespace

int silu_mul(const DeviceSiluMul& args, Stream stream) {
  if (args.rows == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(args.rows), static_cast<unsigned>(ceil_div(args.columns, kThreads)));
  return launch_early(silu_mul_elements, grid, kThreads, 0, stream, args);
}

}  // namespace halfbyte::cuda
