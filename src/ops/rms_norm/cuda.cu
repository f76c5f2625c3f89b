// RMSNorm: a thread block a row, a warp for 512 columns of it.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "device/cuda/early.cuh"
#include "device/cuda/values.cuh"
#include "ops/rms_norm/cuda.h"
#include "ops/rms_norm/sum_of_squares.h"

namespace halfbyte::cuda {

namespace {

constexpr int kMostWarps = 16;

// Sixteen numbers from index on, of which `count` are there; the others become zeros.
__device__ void load_sixteen(const Values& from, std::int64_t index, std::int64_t count, bool vectors,
                             float (&out)[kSumSixteen]) {
  if (vectors && from.dtype == DType::f32 && count >= kSumSixteen) {
    const auto* quads = reinterpret_cast<const float4*>(static_cast<const float*>(from.data) + index);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 quad = quads[i];
      out[4 * i] = quad.x, out[4 * i + 1] = quad.y, out[4 * i + 2] = quad.z, out[4 * i + 3] = quad.w;
    }
    return;
  }
  if (vectors && from.dtype == DType::f16 && count >= kSumSixteen) {
    const auto* eights = reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(from.data) + index);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 eight = eights[i];
      const std::uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) widen_fp16(pairs[j], out[8 * i + 2 * j], out[8 * i + 2 * j + 1]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kSumSixteen; ++i) out[i] = i < count ? value_at(from, index + i) : 0.0f;
}

__device__ void store_sixteen(const MutableValues& to, std::int64_t index, std::int64_t count, bool vectors,
                              const float (&x)[kSumSixteen]) {
  if (vectors && count >= kSumSixteen && to.dtype == DType::f32) {
    auto* quads = reinterpret_cast<float4*>(static_cast<float*>(to.data) + index);
#pragma unroll
    for (int i = 0; i < 4; ++i) quads[i] = {x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]};
    return;
  }
  if (vectors && count >= kSumSixteen && to.dtype == DType::f16) {
    auto* eights = reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(to.data) + index);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      eights[i] = {pack_fp16(x[8 * i], x[8 * i + 1]), pack_fp16(x[8 * i + 2], x[8 * i + 3]),
                   pack_fp16(x[8 * i + 4], x[8 * i + 5]), pack_fp16(x[8 * i + 6], x[8 * i + 7])};
    return;
  }
#pragma unroll
  for (int i = 0; i < kSumSixteen; ++i)
    if (i < count) store_value(to, index + i, x[i]);
}

// x + addend, which is stored.
__device__ void add_sixteen(const AddNorm& p, std::int64_t index, std::int64_t count, bool vectors,
                            float (&x)[kSumSixteen]) {
  load_sixteen({p.x, DType::f32}, index, count, vectors, x);
  if (!p.addend.data) return;
  float y[kSumSixteen];
  load_sixteen(p.addend, index, count, vectors, y);
#pragma unroll
  for (int i = 0; i < kSumSixteen; ++i) x[i] += y[i];
  store_sixteen({p.x, DType::f32}, index, count, vectors, x);
}

// All lanes of a warp get the sum of the squares of its 512 numbers.
__device__ double sum_of_group(const float (&x)[kSumSixteen]) {
  double sum = sum_of_sixteen_squares(x);
#pragma unroll
  for (int half = kSumLanes / 2; half; half /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, half);
  return sum;
}

// kOnce: as many warps as groups, so that the row stays in registers.
template <bool kOnce>
__global__ void __launch_bounds__(kMostWarps * 32)
    add_norm_rows(const __grid_constant__ AddNorm p, int groups, bool vectors) {
  extern __shared__ double sums[];  // [groups]
  const std::int64_t first = blockIdx.x * p.columns;
  const int lane = static_cast<int>(threadIdx.x % 32), warps = static_cast<int>(blockDim.x / 32);
  float x[kSumSixteen], gains[kSumSixteen];
  const auto for_groups = [&](auto body) {
    for (int group = static_cast<int>(threadIdx.x / 32); group < groups; group += warps) {
      const std::int64_t column = std::int64_t{group} * kSumGroup + lane * kSumSixteen;
      body(group, column, p.columns - column);
      if constexpr (kOnce) break;
    }
  };
  let_next_kernel_start();
  if constexpr (kOnce)  // nobody writes them
    for_groups([&](int, std::int64_t column, std::int64_t count) {
      load_sixteen({p.weight, DType::f32}, column, count, vectors, gains);
    });
  wait_for_kernel_before();
  for_groups([&](int group, std::int64_t column, std::int64_t count) {
    add_sixteen(p, first + column, count, vectors, x);
    const double sum = sum_of_group(x);
    if (lane == 0) sums[group] = sum;
  });
  __syncthreads();
  double total = 0;
  for (int group = 0; group < groups; ++group) total += sums[group];
  const float factor = rms_factor(total, p.columns, p.eps);
  for_groups([&](int, std::int64_t column, std::int64_t count) {
    if constexpr (!kOnce) {
      load_sixteen({p.weight, DType::f32}, column, count, vectors, gains);
      load_sixteen({p.x, DType::f32}, first + column, count, vectors, x);
    }
#pragma unroll
    for (int i = 0; i < kSumSixteen; ++i) x[i] = x[i] * factor * gains[i];
    store_sixteen(p.out, first + column, count, vectors, x);
  });
}

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

}  // namespace

int add_norm(const AddNorm& args, Stream stream) {
  if (args.rows == 0) return cudaSuccess;
  const auto groups = static_cast<int>(ceil_div(args.columns, kSumGroup));
  const bool vectors = args.columns % kSumSixteen == 0 && is_aligned(args.x) &&
                       is_aligned(args.addend.data) && is_aligned(args.weight) && is_aligned(args.out.data);
  const auto rows = static_cast<unsigned>(args.rows);
  const int threads = 32 * (groups < kMostWarps ? groups : kMostWarps);
  const auto bytes = static_cast<std::size_t>(groups) * sizeof(double);
  return launch_early(groups <= kMostWarps ? add_norm_rows<true> : add_norm_rows<false>, dim3(rows), threads,
                      bytes, stream, args, groups, vectors);
}

}  // namespace halfbyte::cuda
