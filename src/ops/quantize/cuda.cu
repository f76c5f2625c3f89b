// Launches the quantize kernels: one instance for each format and input type.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "ops/quantize/kernel_double_quant.cuh"
#include "ops/quantize/kernel_quantize.cuh"
#include "ops/quantize/launch.h"

namespace halfbyte::cuda {

namespace {

constexpr int kThreads = 256, kUnroll = 2;

unsigned grid(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>(ceil_div(items, per_block));
}

template <class Encode, class In>
void flat(const QuantizeParams& params, Stream stream) {
  quantize_flat<Encode, In, kThreads, kUnroll>
      <<<grid(params.elements / (8 * kEightsTogether<In>), kThreads * kUnroll), kThreads, 0, stream>>>(
          params);
}

template <class Buckets, class In>
void bnb(const QuantizeParams& params, Stream stream) {
  using Encode = EncodeBnb<Buckets, In>;
  if (params.block_shift <= 8) return flat<Encode, In>(params, stream);
  const std::int64_t blocks = params.elements >> params.block_shift;
  quantize_large_blocks<Encode, In, kThreads><<<grid(blocks, kThreads / 32), kThreads, 0, stream>>>(params);
}

template <class In>
void flat_of(const QuantizeParams& params, Stream stream) {
  switch (params.format) {
    case Format::nf4:
      return bnb<Nf4Buckets, In>(params, stream);
    case Format::fp4:
      return bnb<Fp4Buckets, In>(params, stream);
    case Format::nvfp4:
      return params.global_rule == GlobalScaleRule::pow2 ? flat<EncodeNvfp4<In, true>, In>(params, stream)
                                                         : flat<EncodeNvfp4<In, false>, In>(params, stream);
    case Format::mxfp4:
      return flat<EncodeMxfp4<In>, In>(params, stream);
    case Format::mxfp8_e4m3:
      return flat<EncodeMxfp8<Format::mxfp8_e4m3>, In>(params, stream);
    case Format::mxfp8_e5m2:
      return flat<EncodeMxfp8<Format::mxfp8_e5m2>, In>(params, stream);
    case Format::int4:
      return flat<EncodeInt4, In>(params, stream);
    case Format::int8:
    case Format::bf16:
      break;
  }
}

template <class In>
void int8_rows(const QuantizeParams& params, Stream stream) {
  const auto rows = static_cast<unsigned>(params.elements / params.columns);
  if (params.columns <= 2048) {
    quantize_int8_rows<In, 64, 4><<<rows, 64, 0, stream>>>(params);
  } else {
    quantize_int8_rows<In, 512, 4><<<rows, 512, 0, stream>>>(params);
  }
}

}  // namespace

int launch_quantize_flat(const QuantizeParams& params, Stream stream) {
  if (params.source == DType::bf16) flat_of<InBf16>(params, stream);
  if (params.source == DType::f16) flat_of<InFp16>(params, stream);
  if (params.source == DType::f32) flat_of<InFp32>(params, stream);
  return cudaGetLastError();
}

int launch_quantize_int8(const QuantizeParams& params, Stream stream) {
  if (params.source == DType::bf16) int8_rows<InBf16>(params, stream);
  if (params.source == DType::f16) int8_rows<InFp16>(params, stream);
  if (params.source == DType::f32) int8_rows<InFp32>(params, stream);
  return cudaGetLastError();
}

int launch_quantize_blocks(const QuantizeParams& params, Stream stream) {
  const unsigned blocks = ceil_div(params.blocks, 128) < 65536 ? grid(params.blocks, 128) : 65536;
  if (params.source == DType::bf16) quantize_blocks<InBf16><<<blocks, 128, 0, stream>>>(params);
  if (params.source == DType::f16) quantize_blocks<InFp16><<<blocks, 128, 0, stream>>>(params);
  if (params.source == DType::f32) quantize_blocks<InFp32><<<blocks, 128, 0, stream>>>(params);
  return cudaGetLastError();
}

int launch_global_scale(const QuantizeParams& params, std::uint32_t* workspace, float* global_scale,
                        Stream stream) {
  cudaMemsetAsync(workspace, 0, sizeof *workspace, stream);
  const std::int64_t tiles = ceil_div(params.elements, 8 * 2048);
  const auto blocks = static_cast<unsigned>(tiles < 1 ? 1 : tiles < 4096 ? tiles : 4096);
  if (params.source == DType::bf16)
    tensor_largest<InBf16><<<blocks, 512, 0, stream>>>(params.values, params.elements, workspace);
  if (params.source == DType::f16)
    tensor_largest<InFp16><<<blocks, 512, 0, stream>>>(params.values, params.elements, workspace);
  if (params.source == DType::f32)
    tensor_largest<InFp32><<<blocks, 512, 0, stream>>>(params.values, params.elements, workspace);
  find_global_scale<<<1, 1, 0, stream>>>(workspace, params.global_rule, params.source, global_scale,
                                         params.not_finite);
  return cudaGetLastError();
}

int launch_double_quant(const DoubleQuantParams& params, bool arithmetic, Stream stream) {
  // As many as 132 multiprocessors hold at once: each fetches the table and adds up all sums.
  const std::int64_t wanted = ceil_div(params.blocks, kEncodeThreads / 32 * kDynamic8Group);
  const auto encoders = static_cast<unsigned>(wanted < 792 ? wanted : 792);
  if (arithmetic) {
    sum_absmax<><<<kSumBlocks, kSumThreads, 0, stream>>>(params);
    encode_absmax<><<<encoders, kEncodeThreads, 0, stream>>>(params);
  } else {
    sum_absmax<false><<<kSumBlocks, kSumThreads, 0, stream>>>(params);
    encode_absmax<false><<<encoders, kEncodeThreads, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
