// Instances of the quantize kernels with the arithmetic left out.
#include <cuda_runtime_api.h>

#include "bench/gpu/bytes_kernels.h"
#include "core/shape.h"
#include "device/cuda/bytes_shapes.cuh"
#include "ops/quantize/kernel_quantize.cuh"

namespace halfbyte::bench {

namespace {

using namespace halfbyte::cuda;

unsigned grid(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>(ceil_div(items, per_block));
}

template <class Encode, class In>
void quantize_as(const QuantizeParams& params, int shape, CUstream_st* stream) {
  with_bytes_shape(shape, [&]<int kThreads, int kUnroll>() {
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

int launch_quantize_bytes(const QuantizeParams& params, int shape, std::uint32_t* workspace,
                          CUstream_st* stream) {
  if (params.source == DType::f32)
    quantize_from<InFp32>(params, shape, workspace, stream);
  else
    quantize_from<InBf16>(params, shape, workspace, stream);
  return cudaGetLastError();
}

}  // namespace halfbyte::bench
