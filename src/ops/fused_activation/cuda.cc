// Checks the arguments of fused_activation on CUDA and chooses how it is launched.
#include "ops/fused_activation/cuda.h"

#include <algorithm>
#include <climits>

#include "core/fail.h"
#include "ops/fused_activation/params.h"
#include "ops/quantize/cuda_params.h"

namespace halfbyte::cuda {

namespace {

bool aligned(const void* pointer, std::int64_t row_bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0 && row_bytes % 16 == 0;
}

}  // namespace

void fused_activation(const FusedActivation& args, Stream stream) {
  check_fused_activation(args);
  require_device("fused_activation");
  FusedParams params{.args = args};
  params.args.width = activation_width(args);
  const std::int64_t most = std::max(args.columns, params.args.width), size = dtype_bytes(args.dtype);
  if (most > kMostActivationColumns)
    fail_input("fused_activation on CUDA: rows of {} columns, expected at most {}", most,
               kMostActivationColumns);
  if (args.rows > INT_MAX)
    fail_input("fused_activation on CUDA: {} rows, expected at most {}", args.rows, INT_MAX);
  if (reinterpret_cast<std::uintptr_t>(args.codes) % 8)
    fail_input(
        "fused_activation on CUDA: codes lies {} bytes past a multiple of 8; copy it to an aligned buffer "
        "first",
        reinterpret_cast<std::uintptr_t>(args.codes) % 8);
  if (args.rows == 0) return;
  const std::int64_t row = args.columns * size;
  params.row_blocks =
      static_cast<int>((params.args.width + args.chosen_count) / effective_block(args.spec, 0));
  params.vectors = args.columns % 16 == 0 && aligned(args.x, args.x_stride * size) &&
                   (args.form != ActivationForm::silu_mul || aligned(args.up, args.up_stride * size)) &&
                   aligned(args.residual, row) && aligned(args.residual_out, row) &&
                   reinterpret_cast<std::uintptr_t>(args.norm_weight) % 16 == 0;
  params.stage = args.order || args.chosen_count;
  const MxScaleRule rule = args.spec.mx_scale;
  const bool nvfp4 = args.spec.format == Format::nvfp4;
  params.mx_addend = mx_addend(rule, kMxE2m1);
  params.plain_mx =
      !nvfp4 && (rule == MxScaleRule::floor || rule == MxScaleRule::ceil || rule == MxScaleRule::even);
  params.keeps_sign = nvfp4 ? nvfp4_keeps_negative_zero(args.spec.global_scale) : params.plain_mx;
  params.mode = !params.vectors || args.dtype == DType::f32 || !params.keeps_sign || args.spec.four_six
                    ? FusedMode::general
                : args.spec.scale_search ? FusedMode::search
                                         : FusedMode::plain;
  params.sixteens = params.mode == FusedMode::general ? kMostSixteens : fused_sixteens(most);
  params.threads = fused_threads(most, params.sixteens);
  check_status(launch_fused_activation(params, stream), "launching fused_activation");
}

}  // namespace halfbyte::cuda
