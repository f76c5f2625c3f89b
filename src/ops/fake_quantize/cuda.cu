// Rounds activations with the codecs of src/formats: a thread a block of values, a thread block a row where the row is the block.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "device/cuda/reduce.cuh"
#include "device/cuda/widen.cuh"
#include "formats/int4.h"
#include "formats/int8.h"
#include "formats/mxfp4.h"
#include "formats/mxfp8.h"
#include "ops/fake_quantize/cuda.h"

namespace halfbyte::cuda {

namespace {

constexpr int kThreads = 256, kBlockThreads = 128;

struct Params {
  std::int64_t rows, columns, x_stride, out_stride;
  const float* x;
  float* out;
  const float* global_scale;
  int* not_finite;
  std::int64_t blocks;  // a row
  int block;            // elements
  bool of_rows, four_six, scale_search;
  Format format;
  GlobalScaleRule global_rule;
  MxScaleRule mx_rule;
};

__device__ std::uint32_t magnitude(float x) { return float_bits(x) & 0x7FFFFFFFu; }

__device__ std::uint8_t nvfp4_scale(const Params& p, const float (&x)[16], float absmax, float global) {
  if (p.scale_search) return nvfp4_encode_scale_search(p.global_rule, x, 16, absmax, global, DType::f32);
  if (p.four_six) return nvfp4_encode_scale_four_six(p.global_rule, x, 16, absmax, global, DType::f32);
  return nvfp4_encode_scale(p.global_rule, absmax, global, DType::f32);
}

__global__ void __launch_bounds__(kBlockThreads) round_nvfp4(const __grid_constant__ Params p) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (i >= p.rows * p.blocks) return;
  const std::int64_t row = i / p.blocks, first = i % p.blocks * 16;
  const int count = p.columns - first < 16 ? static_cast<int>(p.columns - first) : 16;
  const float* from = p.x + row * p.x_stride + first;
  float x[16];  // a short block is as good as one padded with zeros
  std::uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    x[j] = j < count ? from[j] : 0.0f;
    bits = max(bits, magnitude(x[j]));
  }
  if (bits >= kInfBits) {
    *p.not_finite = 1;
    return;
  }
  const float global = p.global_scale[p.of_rows ? row : 0];
  const float step = nvfp4_step(p.global_rule, nvfp4_scale(p, x, bits_float(bits), global), global);
  float* out = p.out + row * p.out_stride + first;
#pragma unroll
  for (int j = 0; j < 16; ++j)
    if (j < count) out[j] = nvfp4_decode(nvfp4_encode(p.global_rule, x[j], step), step);
}

__device__ float round_value(const Params& p, float x, float scale) {
  switch (p.format) {
    case Format::mxfp4:
      return mxfp4_decode(mxfp4_encode(p.mx_rule, x, scale, DType::f32), scale);
    case Format::mxfp8_e4m3:
      return mxfp8_e4m3_decode(mxfp8_e4m3_encode(p.mx_rule, x, scale, DType::f32), scale);
    case Format::mxfp8_e5m2:
      return mxfp8_e5m2_decode(mxfp8_e5m2_encode(p.mx_rule, x, scale, DType::f32), scale);
    default:
      return int4_decode(int4_encode(x, scale), scale);
  }
}

__device__ float block_scale(const Params& p, float absmax) {
  const auto mx = [&](const MxElement& element) {
    return e8m0_decode(mx_encode_scale(p.mx_rule, element, absmax, DType::f32));
  };
  switch (p.format) {
    case Format::mxfp4:
      return mx({.emax = 2, .mantissa_bits = 1, .largest = 6.0f});
    case Format::mxfp8_e4m3:
      return mx({.emax = 8, .mantissa_bits = 3, .largest = 448.0f});
    case Format::mxfp8_e5m2:
      return mx({.emax = 15, .mantissa_bits = 2, .largest = 57344.0f});
    default:
      return int4_scale(absmax);
  }
}

__global__ void __launch_bounds__(kBlockThreads) round_blocks(const __grid_constant__ Params p) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (i >= p.rows * p.blocks) return;
  const std::int64_t row = i / p.blocks, first = i % p.blocks * p.block;
  const int count = p.columns - first < p.block ? static_cast<int>(p.columns - first) : p.block;
  const float* x = p.x + row * p.x_stride + first;
  float* out = p.out + row * p.out_stride + first;
  std::uint32_t bits = 0;
  for (int j = 0; j < count; ++j) bits = max(bits, magnitude(x[j]));
  if (bits >= kInfBits) {
    *p.not_finite = 1;
    return;
  }
  const float scale = block_scale(p, bits_float(bits));
  for (int j = 0; j < count; ++j) out[j] = round_value(p, x[j], scale);
}

__device__ std::uint32_t row_magnitude(const float* x, std::int64_t columns) {
  std::uint32_t bits = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += kThreads) bits = max(bits, magnitude(x[c]));
  return block_reduce<kThreads>(bits, Larger{});
}

__global__ void __launch_bounds__(kThreads) round_int8_rows(const __grid_constant__ Params p) {
  const float* x = p.x + blockIdx.x * p.x_stride;
  float* out = p.out + blockIdx.x * p.out_stride;
  const std::uint32_t bits = row_magnitude(x, p.columns);
  if (bits >= kInfBits) {
    if (threadIdx.x == 0) *p.not_finite = 1;
    return;
  }
  const float scale = int8_scale(bits_float(bits));
  for (std::int64_t c = threadIdx.x; c < p.columns; c += kThreads)
    out[c] = int8_decode(int8_encode(x[c], scale), scale);
}

__global__ void __launch_bounds__(kThreads) find_of_rows(const __grid_constant__ FindGlobalScale p) {
  const float absmax = bits_float(row_magnitude(p.x + blockIdx.x * p.x_stride, p.columns));
  if (threadIdx.x) return;
  if (p.of_rows)
    p.global_scale[blockIdx.x] = nvfp4_global_scale(p.rule, absmax, DType::f32);
  else
    p.absmax[blockIdx.x] = absmax;
}

__global__ void __launch_bounds__(kThreads) find_of_tensor(const __grid_constant__ FindGlobalScale p) {
  const float absmax = bits_float(row_magnitude(p.absmax, p.rows));
  if (threadIdx.x == 0) *p.global_scale = nvfp4_global_scale(p.rule, absmax, DType::f32);
}

__global__ void __launch_bounds__(kThreads)
    count_of_rows(const float* x, std::int64_t columns, std::int64_t x_stride, float limit,
                  unsigned long long* count) {
  int beyond = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += kThreads)
    beyond += fabsf(x[blockIdx.x * x_stride + c]) > limit;
  beyond = block_reduce<kThreads>(beyond, Add{});
  if (threadIdx.x == 0 && beyond) atomicAdd(count, static_cast<unsigned long long>(beyond));
}

template <class Stored>
__global__ void __launch_bounds__(kThreads)
    look_for_not_finite(const typename Stored::Bits* x, std::int64_t size, int* not_finite) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size && !is_finite(Stored::widen(x[i]))) *not_finite = 1;
}

__global__ void __launch_bounds__(kThreads) fill_values(float* to, float value, std::int64_t size) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size) to[i] = value;
}

unsigned grid(std::int64_t items, int per_block) { return static_cast<unsigned>(ceil_div(items, per_block)); }

}  // namespace

int find_global_scale(const FindGlobalScale& args, Stream stream) {
  if (args.rows == 0) return cudaSuccess;
  find_of_rows<<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args);
  if (!args.of_rows) find_of_tensor<<<1, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

int fill(float* to, float value, std::int64_t size, Stream stream) {
  fill_values<<<grid(size, kThreads), kThreads, 0, stream>>>(to, value, size);
  return cudaGetLastError();
}

int fake_quantize(const DeviceFakeQuantize& args, Stream stream) {
  if (args.rows == 0 || args.columns == 0) return cudaSuccess;
  const QuantSpec& spec = args.spec;
  const std::int64_t block = effective_block(spec, args.columns);
  const Params params{.rows = args.rows,
                      .columns = args.columns,
                      .x_stride = args.x_stride,
                      .out_stride = args.out_stride,
                      .x = args.x,
                      .out = args.out,
                      .global_scale = args.global_scale,
                      .not_finite = args.not_finite,
                      .blocks = ceil_div(args.columns, block),
                      .block = static_cast<int>(block),
                      .of_rows = args.of_rows,
                      .four_six = spec.four_six,
                      .scale_search = spec.scale_search,
                      .format = spec.format,
                      .global_rule = spec.global_scale,
                      .mx_rule = spec.mx_scale};
  const unsigned blocks = grid(args.rows * params.blocks, kBlockThreads);
  if (spec.format == Format::nvfp4)
    round_nvfp4<<<blocks, kBlockThreads, 0, stream>>>(params);
  else if (spec.format == Format::int8)
    round_int8_rows<<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(params);
  else
    round_blocks<<<blocks, kBlockThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

int count_beyond(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t x_stride, float limit,
                 unsigned long long* count, Stream stream) {
  if (rows == 0) return cudaSuccess;
  count_of_rows<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(x, columns, x_stride, limit, count);
  return cudaGetLastError();
}

int find_not_finite(const void* x, DType dtype, std::int64_t size, int* not_finite, Stream stream) {
  if (size == 0) return cudaSuccess;
  const bool known = with_stored(dtype, [&](auto stored) {
    using Stored = decltype(stored);
    look_for_not_finite<Stored><<<grid(size, kThreads), kThreads, 0, stream>>>(
        static_cast<const typename Stored::Bits*>(x), size, not_finite);
  });
  return known ? cudaGetLastError() : cudaErrorInvalidValue;
}

}  // namespace halfbyte::cuda
