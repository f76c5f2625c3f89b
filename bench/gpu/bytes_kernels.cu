// Instances of the ops' kernels with the arithmetic left out.
#include <cuda_runtime_api.h>

#include "bench/gpu/bytes_kernels.h"
#include "core/shape.h"
#include "ops/dequantize/config.h"
#include "ops/dequantize/kernel_dequantize.cuh"
#include "ops/quantize/kernel_quantize.cuh"

namespace halfbyte::bench {

namespace {

using namespace halfbyte::cuda;

unsigned grid(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>(ceil_div(items, per_block));
}

// Calls launch<threads, unroll>() for the shape of that number.
template <class Launch>
void with_shape(int shape, Launch launch) {
  switch (shape) {
    case 0:
      return launch.template operator()<512, 2>();
    case 1:
      return launch.template operator()<256, 2>();
    case 2:
      return launch.template operator()<1024, 2>();
    default:
      return launch.template operator()<256, 4>();
  }
}

template <class Codes, class Scales, class Out>
void dequantize_as(const DequantizeParams& params, int shape, CUstream_st* stream) {
  with_shape(shape, [&]<int kThreads, int kUnroll>() {
    dequantize_flat<Codes, Scales, Out, kThreads, kUnroll, false>
        <<<grid(params.elements / Out::kChunk, kThreads * kUnroll), kThreads, 0, stream>>>(params);
  });
}

template <class Out>
void dequantize_to(const DequantizeParams& params, bool double_quant, int shape, CUstream_st* stream) {
  // Without arithmetic only the sizes of codes and scales matter.
  using Nibbles = NibbleCodes<NibbleOrder::low_first>;
  using Bytes = ByteCodes<Format::int8>;
  switch (format_info(params.format).scale) {
    case ScaleKind::absmax_f32:
      return double_quant ? dequantize_as<Nibbles, ScaleDouble, Out>(params, shape, stream)
                          : dequantize_as<Nibbles, ScaleF32, Out>(params, shape, stream);
    case ScaleKind::f32:
      return params.format == Format::int8 ? dequantize_as<Bytes, ScaleRow, Out>(params, shape, stream)
                                           : dequantize_as<Nibbles, ScaleF32, Out>(params, shape, stream);
    default:
      return format_info(params.format).bits == 8
                 ? dequantize_as<Bytes, ScaleE8m0, Out>(params, shape, stream)
                 : dequantize_as<Nibbles, ScaleE8m0, Out>(params, shape, stream);
  }
}

template <class Encode, class In>
void quantize_as(const QuantizeParams& params, int shape, CUstream_st* stream) {
  with_shape(shape, [&]<int kThreads, int kUnroll>() {
    quantize_flat<Encode, In, kThreads, kUnroll, false>
        <<<grid(params.elements / (8 * kEightsTogether<In>), kThreads * kUnroll), kThreads, 0, stream>>>(
            params);
  });
}

template <class In>
void quantize_from(const QuantizeParams& params, int shape, std::uint32_t* workspace, CUstream_st* stream) {
  if (params.format == Format::nvfp4)
    tensor_largest<In, false>
        <<<132 * 4 * (shape + 1), 512, 0, stream>>>(params.values, params.elements, workspace);
  if (params.format == Format::int8) {
    const auto rows = static_cast<unsigned>(params.elements / params.columns);
    if (shape % 2) {
      quantize_int8_rows<In, 256, 8, false><<<rows, 256, 0, stream>>>(params);
    } else {
      quantize_int8_rows<In, 512, 4, false><<<rows, 512, 0, stream>>>(params);
    }
    return;
  }
  if (format_info(params.format).scale == ScaleKind::absmax_f32 || params.format == Format::int4)
    return quantize_as<EncodeInt4, In>(params, shape, stream);
  if (format_info(params.format).bits == 8)
    return quantize_as<EncodeMxfp8<Format::mxfp8_e4m3>, In>(params, shape, stream);
  return quantize_as<EncodeMxfp4<In>, In>(params, shape, stream);
}

}  // namespace

int launch_dequantize_bytes(const DequantizeParams& params, DType dtype, bool double_quant, int shape,
                            CUstream_st* stream) {
  if (dtype == DType::f32)
    dequantize_to<OutFp32>(params, double_quant, shape, stream);
  else
    dequantize_to<OutBf16>(params, double_quant, shape, stream);
  return cudaGetLastError();
}

int launch_quantize_bytes(const QuantizeParams& params, int shape, std::uint32_t* workspace,
                          CUstream_st* stream) {
  if (params.source == DType::f32)
    quantize_from<InFp32>(params, shape, workspace, stream);
  else
    quantize_from<InBf16>(params, shape, workspace, stream);
  return cudaGetLastError();
}

}  // namespace halfbyte::bench
