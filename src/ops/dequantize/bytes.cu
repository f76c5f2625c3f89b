// The dequantize kernel with the arithmetic left out: what memory alone allows, for benchmarks.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "device/cuda/bytes_shapes.cuh"
#include "ops/dequantize/kernel_dequantize.cuh"
#include "ops/dequantize/launch.h"

namespace halfbyte::cuda {

namespace {

template <class Codes, class Scales, class Out>
void move(const DequantizeParams& params, int shape, Stream stream) {
  with_bytes_shape(shape, [&]<int kThreads, int kUnroll>() {
    const auto blocks = static_cast<unsigned>(ceil_div(params.elements / Out::kChunk, kThreads * kUnroll));
    dequantize_flat<Codes, Scales, Out, kThreads, kUnroll, false><<<blocks, kThreads, 0, stream>>>(params);
  });
}

template <class Out>
void move_to(const DequantizeParams& params, bool double_quant, int shape, Stream stream) {
  // Without arithmetic only the sizes of codes and scales matter.
  using Nibbles = NibbleCodes<NibbleOrder::low_first>;
  using Bytes = ByteCodes<Format::int8>;
  switch (format_info(params.format).scale) {
    case ScaleKind::absmax_f32:
      return double_quant ? move<Nibbles, ScaleDouble, Out>(params, shape, stream)
                          : move<Nibbles, ScaleF32, Out>(params, shape, stream);
    case ScaleKind::f32:
      return params.format == Format::int8 ? move<Bytes, ScaleRow, Out>(params, shape, stream)
                                           : move<Nibbles, ScaleF32, Out>(params, shape, stream);
    default:
      return format_info(params.format).bits == 8 ? move<Bytes, ScaleE8m0, Out>(params, shape, stream)
                                                  : move<Nibbles, ScaleE8m0, Out>(params, shape, stream);
  }
}

}  // namespace

int launch_dequantize_bytes(const DequantizeParams& params, DType dtype, bool double_quant, int shape,
                            Stream stream) {
  if (dtype == DType::f32)
    move_to<OutFp32>(params, double_quant, shape, stream);
  else
    move_to<OutBf16>(params, double_quant, shape, stream);
  return cudaGetLastError();
}

}  // namespace halfbyte::cuda
