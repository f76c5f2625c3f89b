// Checks the arguments of a CUDA dequantization and chooses its launch; cuda.cu launches, the kernels compute.
#include "ops/dequantize/cuda.h"

#include <string_view>

#include "core/fail.h"
#include "device/cuda/device.h"
#include "ops/dequantize/config.h"
#include "ops/dequantize/launch.h"

namespace halfbyte::cuda {

namespace {

void require(const Dequantize& args, std::string_view part, const void* pointer, std::uintptr_t alignment) {
  if (!pointer) fail_input("CUDA dequantize of {}: {} is null", to_string(args.spec), part);
  const auto excess = reinterpret_cast<std::uintptr_t>(pointer) % alignment;
  if (excess)
    fail_input(
        "CUDA dequantize of {}: {} lies {} bytes past a multiple of {}; copy it to an aligned buffer first",
        to_string(args.spec), part, excess, alignment);
}

void check(const Dequantize& args) {
  validate(args.spec);
  if (args.spec.format == Format::bf16) fail_input("CUDA dequantize: bf16 tensors hold no codes");
  if (args.dtype != DType::bf16 && args.dtype != DType::f16 && args.dtype != DType::f32)
    fail_input("CUDA dequantize: to {}, expected BF16, F16 or F32", dtype_name(args.dtype));
  require(args, "codes", args.codes, 16);
  require(args, "out", args.out, 16);
  const ScaleKind kind = format_info(args.spec.format).scale;
  if (args.spec.double_quant) {
    require(args, "scales8", args.scales8, 1);
    require(args, "nested_absmax", args.nested_absmax, 4);
    require(args, "map", args.map, 4);
    if (args.group < 1 || (args.group & (args.group - 1)))
      fail_input("CUDA dequantize: groups of {} absmax values, expected a power of two", args.group);
  } else if (kind == ScaleKind::absmax_f32 || kind == ScaleKind::f32) {
    require(args, "scales", args.scales, 4);
  } else {
    require(args, "scales8", args.scales8, 1);
    if (kind == ScaleKind::e4m3_and_global) require(args, "global_scale", args.global_scale, 4);
  }
}

}  // namespace

DequantizeParams dequantize_params(const Dequantize& args) {
  DequantizeParams params;
  params.codes = args.codes;
  params.scales8 = args.scales8;
  params.scales = args.scales;
  params.nested = args.nested_absmax;
  params.map = args.map;
  params.global_scale = args.global_scale;
  params.out = args.out;
  params.elements = args.rows * args.columns;
  params.columns = args.columns;
  params.offset = args.offset;
  params.block_shift = log2_of(effective_block(args.spec, args.columns));
  params.group_shift = log2_of(args.group);
  if (args.spec.format == Format::int8 && args.columns % 8 == 0 && args.columns / 4 < std::int64_t{1} << 31)
    params.row_of = FastDivide::by(static_cast<std::uint32_t>(args.columns / 4));
  params.format = args.spec.format;
  params.global_divides = args.spec.global_scale == GlobalScaleRule::compressed_tensors;
  return params;
}

void dequantize(const Dequantize& args, Stream stream) {
  const auto elements = checked_mul(args.rows, args.columns);
  if (!elements) fail_input("CUDA dequantize: {} rows of {} columns is no tensor", args.rows, args.columns);
  if (*elements == 0) return;
  check(args);
  require_device("dequantize");
  const DequantizeParams params = dequantize_params(args);
  check_status(takes_fast_path(args.spec, args.rows, args.columns)
                   ? launch_dequantize_flat(params, args.dtype, args.spec.double_quant,
                                            dequantize_shape(*elements, args.dtype), stream)
                   : launch_dequantize_rows(params, args.dtype, stream),
               "launching dequantize");
}

}  // namespace halfbyte::cuda
