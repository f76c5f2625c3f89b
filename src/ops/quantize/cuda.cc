// Checks the arguments of a CUDA quantization and chooses its kernels; cuda.cu launches, the kernels compute.
#include "ops/quantize/cuda.h"

#include <string_view>

#include "core/fail.h"
#include "device/cuda/device.h"
#include "ops/dequantize/config.h"
#include "ops/quantize/launch.h"

namespace halfbyte::cuda {

namespace {

void require(const Quantize& args, std::string_view part, const void* pointer, std::uintptr_t alignment) {
  if (!pointer) fail_input("CUDA quantize to {}: {} is null", to_string(args.spec), part);
  const auto excess = reinterpret_cast<std::uintptr_t>(pointer) % alignment;
  if (excess)
    fail_input(
        "CUDA quantize to {}: {} lies {} bytes past a multiple of {}; copy it to an aligned buffer first",
        to_string(args.spec), part, excess, alignment);
}

void check(const Quantize& args) {
  validate(args.spec);
  if (args.spec.format == Format::bf16) fail_input("CUDA quantize: bf16 tensors hold no codes");
  if (args.source != DType::bf16 && args.source != DType::f16 && args.source != DType::f32)
    fail_input("CUDA quantize: from {}, expected BF16, F16 or F32", dtype_name(args.source));
  require(args, "values", args.values, 16);
  require(args, "codes", args.codes, 16);
  const ScaleKind kind = format_info(args.spec.format).scale;
  if (kind == ScaleKind::absmax_f32 || kind == ScaleKind::f32) {
    require(args, "scales", args.scales, 4);
  } else {
    require(args, "scales8", args.scales8, 1);
  }
  if (args.spec.double_quant) {
    require(args, "scales8", args.scales8, 1);
    require(args, "nested_absmax", args.nested_absmax, 4);
    require(args, "offset", args.offset, 4);
    require(args, "workspace", args.workspace, 8);
  }
  if (kind == ScaleKind::e4m3_and_global) {
    require(args, "global_scale", args.global_scale, 4);
    if (!args.keep_global_scale) require(args, "workspace", args.workspace, 4);
  }
}

BucketTable bucket_table(Format format) {
  static const BucketTable nf4 = BucketTable::of<Nf4Buckets>(), fp4 = BucketTable::of<Fp4Buckets>();
  return format == Format::fp4 ? fp4 : nf4;
}

// Rules whose values are encoded like those of the default rule once the scale is known.
bool has_fast_path(const QuantSpec& spec) {
  switch (spec.format) {
    case Format::nvfp4:
      return !spec.four_six && !spec.scale_search &&
             (spec.global_scale == GlobalScaleRule::pow2 || spec.global_scale == GlobalScaleRule::amax);
    case Format::mxfp4:
    case Format::mxfp8_e4m3:
    case Format::mxfp8_e5m2:
      return spec.mx_scale == MxScaleRule::floor || spec.mx_scale == MxScaleRule::ceil ||
             spec.mx_scale == MxScaleRule::even;
    default:
      return true;
  }
}

}  // namespace

QuantizeParams quantize_params(const Quantize& args) {
  const FormatInfo& info = format_info(args.spec.format);
  const bool flat = info.axis == BlockAxis::flat;
  QuantizeParams params;
  params.values = args.values;
  params.codes = args.codes;
  params.scales8 =
      info.scale == ScaleKind::e8m0 || info.scale == ScaleKind::e4m3_and_global ? args.scales8 : nullptr;
  params.scales = args.scales;
  params.global_scale = args.global_scale;
  params.not_finite = args.not_finite;
  params.elements = args.rows * args.columns;
  params.columns = flat ? params.elements : args.columns;
  params.block = effective_block(args.spec, args.columns);
  params.block_shift = log2_of(params.block);
  params.format = args.spec.format;
  params.source = args.source;
  params.global_rule = args.spec.global_scale;
  params.mx_rule = args.spec.mx_scale;
  params.mx_addend = mx_addend(args.spec.mx_scale, mx_element_of(args.spec.format));
  params.four_six = args.spec.four_six;
  params.scale_search = args.spec.scale_search;
  params.buckets = bucket_table(args.spec.format);
  return params;
}

DoubleQuantParams double_quant_params(const Quantize& args) {
  return {.absmax = args.scales,
          .blocks = ceil_div(args.rows * args.columns, effective_block(args.spec, args.columns)),
          .codes = args.scales8,
          .nested_absmax = args.nested_absmax,
          .offset = args.offset,
          .workspace = args.workspace,
          .mantissa_zeros = args.source == DType::bf16  ? 16
                            : args.source == DType::f16 ? 13
                                                        : 0,
          .aligned = reinterpret_cast<std::uintptr_t>(args.scales) % 16 == 0 &&
                     reinterpret_cast<std::uintptr_t>(args.scales8) % 8 == 0};
}

void quantize(const Quantize& args, Stream stream) {
  const auto elements = checked_mul(args.rows, args.columns);
  if (!elements) fail_input("CUDA quantize: {} rows of {} columns is no tensor", args.rows, args.columns);
  if (*elements == 0) return;
  check(args);
  require_device("quantize");
  const FormatInfo& info = format_info(args.spec.format);
  const bool flat = info.axis == BlockAxis::flat;
  QuantizeParams params = quantize_params(args);
  if (args.spec.format == Format::nvfp4 && !args.keep_global_scale)
    check_status(launch_global_scale(params, args.workspace, args.global_scale, stream),
                 "launching the global scale");

  const std::int64_t rows = *elements / params.columns, per_row = ceil_div(params.columns, params.block);
  params.blocks = rows * per_row;
  if (args.spec.format == Format::int8 && args.columns % 8 == 0) {
    check_status(launch_quantize_int8(params, stream), "launching quantize");
    return;
  }
  if (info.axis != BlockAxis::whole_row && has_fast_path(args.spec) &&
      (flat || args.columns % params.block == 0)) {
    const std::int64_t whole = *elements / params.block;
    QuantizeParams part = params;
    part.elements = whole * params.block;
    if (whole) check_status(launch_quantize_flat(part, stream), "launching quantize");
    params.first_block = whole;
    params.blocks -= whole;
  }
  if (params.blocks) check_status(launch_quantize_blocks(params, stream), "launching quantize");
  if (args.spec.double_quant)
    check_status(launch_double_quant(double_quant_params(args), true, stream),
                 "launching double quantization");
}

}  // namespace halfbyte::cuda
