// A C interface to the CUDA ops, for scripts that compare them with a peer on the same device memory (ctypes).
#include <exception>
#include <string>

#include "bench/gpu/kernels.h"
#include "device/cuda/device.h"
#include "ops/dequantize/cuda.h"
#include "ops/matmul_w4a16/cuda.h"
#include "ops/matmul_w4a16/pack.h"

namespace {

thread_local std::string last_error;

// 0 where call() returns, else 1 and a sentence for halfbyte_last_error().
template <class Call>
int guarded(Call call) {
  try {
    call();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return 1;
  }
}

}  // namespace

extern "C" {

// Sentence about the last call that returned non-zero.
const char* halfbyte_last_error() { return last_error.c_str(); }

struct HalfbyteDequantize {
  const char* format;
  std::int64_t block_size;
  int double_quant;
  const char* rule;  // nvfp4: of the global scale
  std::int64_t rows, columns;
  const void *codes, *scales8, *scales, *nested_absmax, *map;
  float offset;
  std::int64_t group;
  const void* global_scale;
  const char* dtype;  // "BF16", "F16", "F32"
  void* out;
};

static halfbyte::QuantSpec spec_of(const HalfbyteDequantize& weights) {
  return {.format = halfbyte::format_from_name(weights.format),
          .block_size = weights.block_size,
          .double_quant = weights.double_quant != 0,
          .global_scale = halfbyte::global_scale_rule_from_name(weights.rule)};
}

int halfbyte_dequantize(const HalfbyteDequantize* call, void* stream) {
  using namespace halfbyte;
  return guarded([&] {
    cuda::Dequantize args;
    args.spec = spec_of(*call);
    args.rows = call->rows;
    args.columns = call->columns;
    args.codes = static_cast<const std::uint8_t*>(call->codes);
    args.scales8 = static_cast<const std::uint8_t*>(call->scales8);
    args.scales = static_cast<const float*>(call->scales);
    args.nested_absmax = static_cast<const float*>(call->nested_absmax);
    args.map = static_cast<const float*>(call->map);
    args.offset = call->offset;
    args.group = call->group;
    args.global_scale = static_cast<const float*>(call->global_scale);
    args.dtype = dtype_from_name(call->dtype).value();
    args.out = call->out;
    cuda::dequantize(args, static_cast<cuda::Stream>(stream));
  });
}

// Products with 4-bit weights: the weights as in HalfbyteDequantize (dtype that of activations, bias and out), packed once
// into tiles[halfbyte_w4_tile_bytes()].
struct HalfbyteMatmul {
  HalfbyteDequantize weights;
  void* tiles;
  std::int64_t m;
  const void *activations, *bias;
  void *out, *workspace;
};

std::int64_t halfbyte_w4_tile_bytes(const HalfbyteDequantize* weights) {
  std::int64_t bytes = -1;
  guarded([&] { bytes = halfbyte::w4_tile_bytes(spec_of(*weights), weights->rows, weights->columns); });
  return bytes;
}

std::int64_t halfbyte_w4_workspace(const HalfbyteDequantize* weights, std::int64_t m) {
  return halfbyte::cuda::matmul_w4a16_workspace(m, weights->rows, weights->columns);
}

int halfbyte_w4_pack(const HalfbyteMatmul* call, void* stream) {
  using namespace halfbyte;
  return guarded([&] {
    const HalfbyteDequantize& weights = call->weights;
    cuda::pack_w4(
        spec_of(weights), weights.rows, weights.columns, static_cast<const std::uint8_t*>(weights.codes),
        static_cast<const std::uint8_t*>(weights.scales8), static_cast<const float*>(weights.scales),
        static_cast<std::uint8_t*>(call->tiles), static_cast<cuda::Stream>(stream));
  });
}

int halfbyte_w4_matmul(const HalfbyteMatmul* call, void* stream) {
  using namespace halfbyte;
  return guarded([&] {
    const HalfbyteDequantize& weights = call->weights;
    cuda::matmul_w4a16({.weights = {.spec = spec_of(weights),
                                    .rows = weights.rows,
                                    .columns = weights.columns,
                                    .tiles = static_cast<const std::uint8_t*>(call->tiles),
                                    .global_scale = static_cast<const float*>(weights.global_scale),
                                    .nested_absmax = static_cast<const float*>(weights.nested_absmax),
                                    .map = static_cast<const float*>(weights.map),
                                    .offset = weights.offset},
                        .m = call->m,
                        .dtype = dtype_from_name(weights.dtype).value(),
                        .activations = call->activations,
                        .bias = call->bias,
                        .out = call->out,
                        .workspace = call->workspace},
                       static_cast<cuda::Stream>(stream));
  });
}

// Reads bytes and does nothing else: the floor of a product.
int halfbyte_read(const void* data, std::int64_t bytes, void* sink, void* stream) {
  return halfbyte::bench::launch_read(data, bytes, static_cast<std::uint32_t*>(sink),
                                      static_cast<halfbyte::cuda::Stream>(stream));
}
}
