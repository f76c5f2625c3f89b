// quantize(): checks, allocates, chooses an implementation, refuses values that are not finite.
#include <algorithm>
#include <array>
#include <atomic>

#include "core/fail.h"
#include "ops/quantize/double_quant.h"
#include "ops/quantize/op.h"

namespace halfbyte {

namespace {

using Run = bool (*)(const Quantize&);
constexpr std::array<KernelRow, 2> kRows{{
    {"quantize", "cpu", "cpu", always_available},
    {"quantize", "reference", "cpu", always_available},
}};
constexpr std::array<Run, 2> kRuns{quantize_cpu, quantize_reference};

constexpr std::int64_t kChunk = 1 << 16;  // elements of a work item

void check_values(const TensorView& values, std::string_view name) {
  if (!is_source_dtype(values.dtype))
    fail_input("{}: values of type {} cannot be quantized, expected F32, BF16 or F16", name,
               dtype_name(values.dtype));
  const std::int64_t expected = extent_of(values.shape).elements() * dtype_bytes(values.dtype);
  if (static_cast<std::int64_t>(values.data.size()) != expected)
    fail_input("{}: {} bytes of data, expected {} for {} {}", name, values.data.size(), expected,
               dtype_name(values.dtype), to_string(values.shape));
}

[[noreturn]] void refuse_non_finite(const TensorView& values, const Extent& extent, std::string_view name) {
  std::int64_t i = 0;
  while (is_finite(load_element(values.dtype, values.data.data(), i))) ++i;
  const float value = load_element(values.dtype, values.data.data(), i);
  fail_input(
      "{}: element {} (row {}, column {} of {}) is {}; a tensor with NaN or infinity cannot be quantized",
      name, i, i / extent.columns, i % extent.columns, to_string(values.shape),
      is_nan(value)  ? "NaN"
      : value > 0.0f ? "infinity"
                     : "-infinity");
}

void convert_to_bf16(const TensorView& values, QuantizedTensor& out, ThreadPool& pool) {
  const std::int64_t elements = out.codes.size() / 2;
  pool.parallel_for(ceil_div(elements, kChunk), [&](std::int64_t item) {
    const std::int64_t last = std::min((item + 1) * kChunk, elements);
    for (std::int64_t i = item * kChunk; i < last; ++i) {
      const std::uint16_t code = bf16_encode(load_element(values.dtype, values.data.data(), i));
      out.codes[2 * i] = static_cast<std::uint8_t>(code);
      out.codes[2 * i + 1] = static_cast<std::uint8_t>(code >> 8);
    }
  });
}

}  // namespace

float tensor_absmax(const TensorView& values, ThreadPool& pool) {
  check_values(values, "tensor");
  const std::int64_t elements = extent_of(values.shape).elements();
  std::atomic<std::uint32_t> largest = 0;
  pool.parallel_for(ceil_div(elements, kChunk), [&](std::int64_t item) {
    const std::int64_t last = std::min((item + 1) * kChunk, elements);
    std::uint32_t mine = 0;  // magnitudes order like their bits, NaN above everything
    auto scan = [&](auto element) {
      for (std::int64_t i = item * kChunk; i < last; ++i)
        mine = std::max(mine, float_bits(element(i)) & 0x7FFFFFFFu);
    };
    const std::byte* bytes = values.data.data();
    if (values.dtype == DType::f32) scan([&](std::int64_t i) { return load<float>(bytes, i); });
    if (values.dtype == DType::bf16)
      scan([&](std::int64_t i) { return bf16_decode(load<std::uint16_t>(bytes, i)); });
    if (values.dtype == DType::f16)
      scan([&](std::int64_t i) { return fp16_decode(load<std::uint16_t>(bytes, i)); });
    std::uint32_t seen = largest.load();
    while (seen < mine && !largest.compare_exchange_weak(seen, mine)) {
    }
  });
  return bits_float(largest.load());
}

QuantizedTensor quantize(const TensorView& values, const QuantSpec& spec, ThreadPool& pool,
                         const QuantizeOptions& options) {
  check_values(values, options.name);
  QuantizedTensor out = make_quantized(spec, values.shape, values.dtype);
  const Extent extent = extent_of(values.shape);
  if (spec.format == Format::bf16) {
    convert_to_bf16(values, out, pool);
    return out;
  }
  if (spec.format == Format::nvfp4) {
    const float amax = options.global_scale ? 0.0f : tensor_absmax(values, pool);
    if (!is_finite(amax)) refuse_non_finite(values, extent, options.name);
    out.global_scale = options.global_scale ? *options.global_scale
                                            : nvfp4_global_scale(spec.global_scale, amax, values.dtype);
    if (options.global_scale && !nvfp4_is_global_scale(spec.global_scale, *options.global_scale))
      fail_input(
          "{}: {} cannot be a global scale; it must be positive, and 448 times it (compressed-tensors: 448 "
          "divided "
          "by it) a float32",
          options.name, *options.global_scale);
  }
  if (spec.double_quant) out.scales = Array<float>(part_sizes(spec, values.shape).blocks);
  const Quantize args{.values = values, .extent = extent, .out = &out, .pool = &pool};
  if (!kRuns[choose_kernel(kRows)](args)) refuse_non_finite(values, extent, options.name);
  if (spec.double_quant) {
    double_quantize(out.scales.span(), out);
    out.scales = Array<float>();
  }
  return out;
}

std::span<const KernelRow> quantize_kernels() { return kRows; }

}  // namespace halfbyte
