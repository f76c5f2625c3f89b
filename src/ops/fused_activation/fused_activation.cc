// The checks of fused_activation that host and device share.
#include "core/fail.h"
#include "formats/source_dtype.h"
#include "ops/fused_activation/op.h"

namespace halfbyte {

namespace {

void require(const char* part, const void* pointer) {
  if (!pointer) fail_input("fused_activation: {} is null", part);
}

void check_stride(const char* part, std::int64_t stride, std::int64_t columns) {
  if (stride < columns)
    fail_input("fused_activation: rows of {} lie {} elements apart, expected at least {}", part, stride,
               columns);
}

}  // namespace

void check_fused_activation(const FusedActivation& args) {
  validate(args.spec);
  if (args.spec.format != Format::nvfp4 && args.spec.format != Format::mxfp4)
    fail_input("fused_activation: activations in {}, expected nvfp4 or mxfp4", format_name(args.spec.format));
  if (!is_source_dtype(args.dtype))
    fail_input("fused_activation: values of type {}, expected BF16, F16 or F32", dtype_name(args.dtype));
  const std::int64_t block = effective_block(args.spec, 0), width = activation_width(args);
  if (args.rows < 0 || args.columns < 1 || width < 1)
    fail_input("fused_activation: {} rows of {} columns, gathered to {}", args.rows, args.columns, width);
  if (!args.order && width != args.columns)
    fail_input("fused_activation: {} columns cannot become {} without an order", args.columns, width);
  if (width % block || args.chosen_count % block || args.chosen_count < 0 || args.chosen_count > width)
    fail_input(
        "fused_activation: {} columns with {} residual ones; both must be multiples of the block of {}, the "
        "second at most "
        "the first",
        width, args.chosen_count, block);
  require("x", args.x);
  check_stride("x", args.x_stride, args.columns);
  if (args.form == ActivationForm::silu_mul) {
    require("up", args.up);
    check_stride("up", args.up_stride, args.columns);
  }
  if (args.form == ActivationForm::norm) {
    require("norm_weight", args.norm_weight);
    if (args.norm_dtype != DType::f32 && args.norm_dtype != DType::bf16)
      fail_input("fused_activation: norm weights of type {}, expected F32 or BF16",
                 dtype_name(args.norm_dtype));
  }
  if (args.chosen_count) require("chosen", args.chosen);
  if (args.spec.format == Format::nvfp4) {
    if (args.scope == ScaleScope::tensor)
      require("global_scale", args.global_scale);
    else
      require("row_scales", args.row_scales);
  }
  require("codes", args.codes);
  require("scales", args.scales);
}

}  // namespace halfbyte
