// fake_quantize(): checks, chooses an implementation, refuses values that are not finite.
#include <array>

#include "core/fail.h"
#include "ops/fake_quantize/op.h"

namespace halfbyte {

namespace {

using Run = bool (*)(const FakeQuantize&, ThreadPool&);
constexpr std::array<KernelRow, 2> kRows{{
    {"fake_quantize", "cpu", "cpu", always_available},
    {"fake_quantize", "reference", "cpu", always_available},
}};
constexpr std::array<Run, 2> kRuns{fake_quantize_cpu, fake_quantize_reference};

[[noreturn]] void refuse_non_finite(const FakeQuantize& args) {
  for (std::int64_t row = 0; row < args.rows; ++row)
    for (std::int64_t column = 0; column < args.columns; ++column)
      if (const float value = args.x[row * args.x_stride + column]; !is_finite(value))
        fail_input("fake_quantize: activation at row {}, column {} of {} x {} is {} and cannot be quantized",
                   row, column, args.rows, args.columns,
                   is_nan(value)  ? "NaN"
                   : value > 0.0f ? "infinity"
                                  : "-infinity");
  fail_input("fake_quantize: an activation is NaN or infinite and cannot be quantized");
}

}  // namespace

void fake_quantize(const FakeQuantize& args, ThreadPool& pool) {
  validate(args.spec);
  const FormatInfo& info = format_info(args.spec.format);
  if (!has_row_blocks(args.spec.format))
    fail(ErrorKind::unsupported,
         "fake_quantize: activations in {}; possible are nvfp4, mxfp4, mxfp8, int4 and int8", info.name);
  if (args.rows < 0 || args.columns < 0 || args.x_stride < args.columns || args.out_stride < args.columns)
    fail_input("fake_quantize: {} x {} values with row strides {} and {}", args.rows, args.columns,
               args.x_stride, args.out_stride);
  if (args.spec.format == Format::nvfp4 && args.global_scale &&
      !nvfp4_is_global_scale(args.spec.global_scale, *args.global_scale))
    fail_input("fake_quantize: {} cannot be a global scale; it must be positive and its steps finite",
               *args.global_scale);
  if (args.rows == 0 || args.columns == 0) return;
  if (!kRuns[choose_kernel(kRows)](args, pool)) refuse_non_finite(args);
}

std::span<const KernelRow> fake_quantize_kernels() { return kRows; }

}  // namespace halfbyte
