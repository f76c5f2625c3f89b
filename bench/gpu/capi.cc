// A C interface to the CUDA ops, for scripts that compare them with a peer on the same device memory (ctypes).
#include <exception>
#include <string>

#include "device/cuda/device.h"
#include "ops/dequantize/cuda.h"

namespace {
thread_local std::string last_error;
}

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

int halfbyte_dequantize(const HalfbyteDequantize* call, void* stream) {
  using namespace halfbyte;
  try {
    cuda::Dequantize args;
    args.spec = {.format = format_from_name(call->format),
                 .block_size = call->block_size,
                 .double_quant = call->double_quant != 0,
                 .global_scale = global_scale_rule_from_name(call->rule)};
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
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return 1;
  }
}
}
