// Launches the dequantize kernels: one instance for each pair of codes and scales, and output type.
#include <cuda_runtime_api.h>

#include "ops/dequantize/kernel_dequantize.cuh"
#include "ops/dequantize/launch.h"

namespace halfbyte::cuda {

namespace {

template <class Codes, class Scales, class Out>
void launch(const DequantizeParams& params, const LaunchShape& shape, Stream stream) {
  dequantize_flat<Codes, Scales, Out, kDequantizeThreads, kDequantizeUnroll>
      <<<static_cast<unsigned>(shape.blocks), kDequantizeThreads, 0, stream>>>(params);
}

template <class Out>
void launch_flat(const DequantizeParams& params, bool double_quant, const LaunchShape& shape, Stream stream) {
  using High = NibbleCodes<NibbleOrder::high_first>;
  using Low = NibbleCodes<NibbleOrder::low_first>;
  switch (params.format) {
    case Format::nf4:
    case Format::fp4:
      return double_quant ? launch<High, ScaleDouble, Out>(params, shape, stream)
                          : launch<High, ScaleF32, Out>(params, shape, stream);
    case Format::nvfp4:
      return launch<Low, ScaleNvfp4, Out>(params, shape, stream);
    case Format::mxfp4:
      return launch<Low, ScaleE8m0, Out>(params, shape, stream);
    case Format::int4:
      return launch<Low, ScaleF32, Out>(params, shape, stream);
    case Format::mxfp8_e4m3:
      return launch<ByteCodes<Format::mxfp8_e4m3>, ScaleE8m0, Out>(params, shape, stream);
    case Format::mxfp8_e5m2:
      return launch<ByteCodes<Format::mxfp8_e5m2>, ScaleE8m0, Out>(params, shape, stream);
    case Format::int8:
      return launch<ByteCodes<Format::int8>, ScaleRow, Out>(params, shape, stream);
    case Format::bf16:
      break;
  }
}

}  // namespace

int launch_dequantize_flat(const DequantizeParams& params, DType dtype, bool double_quant,
                           const LaunchShape& shape, Stream stream) {
  if (dtype == DType::bf16) launch_flat<OutBf16>(params, double_quant, shape, stream);
  if (dtype == DType::f16) launch_flat<OutFp16>(params, double_quant, shape, stream);
  if (dtype == DType::f32) launch_flat<OutFp32>(params, double_quant, shape, stream);
  return cudaGetLastError();
}

int launch_dequantize_rows(const DequantizeParams& params, DType dtype, Stream stream) {
  const std::int64_t pairs = params.elements / params.columns * ceil_div(params.columns, 2);
  const auto blocks = static_cast<unsigned>(ceil_div(pairs, 256) < 65536 ? ceil_div(pairs, 256) : 65536);
  if (dtype == DType::bf16) dequantize_rows<OutBf16><<<blocks, 256, 0, stream>>>(params);
  if (dtype == DType::f16) dequantize_rows<OutFp16><<<blocks, 256, 0, stream>>>(params);
  if (dtype == DType::f32) dequantize_rows<OutFp32><<<blocks, 256, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
