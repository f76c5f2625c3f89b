// dequantize(): checks, shares the elements among threads and rounds to the type asked for.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/fail.h"
#include "formats/source_dtype.h"
#include "ops/dequantize/op.h"

namespace halfbyte {

namespace {

using Run = void (*)(const Dequantize&);
constexpr std::array<KernelRow, 2> kRows{{
    {"dequantize", "cpu", "cpu", always_available},
    {"dequantize", "reference", "cpu", always_available},
}};
constexpr std::array<Run, 2> kRuns{dequantize_cpu, dequantize_reference};

constexpr std::int64_t kPiece = 4096;        // elements decoded at once
constexpr std::int64_t kItem = 16 * kPiece;  // elements of a work item

void store(DType dtype, const float* x, std::int64_t count, std::byte* out) {
  if (dtype == DType::f32) {
    std::memcpy(out, x, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  std::array<std::uint16_t, kPiece> rounded;
  if (dtype == DType::bf16)
    for (std::int64_t i = 0; i < count; ++i) rounded[static_cast<std::size_t>(i)] = bf16_encode(x[i]);
  else
    for (std::int64_t i = 0; i < count; ++i) rounded[static_cast<std::size_t>(i)] = fp16_encode(x[i]);
  std::memcpy(out, rounded.data(), static_cast<std::size_t>(count) * sizeof(std::uint16_t));
}

}  // namespace

void dequantize_rows(const QuantizedTensor& tensor, std::int64_t first, std::int64_t last, DType dtype,
                     std::span<std::byte> out, ThreadPool& pool) {
  check_parts(tensor, "dequantize");
  const Extent extent = extent_of(tensor.shape);
  if (!is_source_dtype(dtype)) fail_input("dequantize: to {}, expected F32, BF16 or F16", dtype_name(dtype));
  if (first < 0 || first > last || last > extent.rows)
    fail_input("dequantize: rows {} to {} of a tensor of {} rows", first, last, extent.rows);
  const std::int64_t begin = first * extent.columns, end = last * extent.columns;
  if (static_cast<std::int64_t>(out.size()) != (end - begin) * dtype_bytes(dtype))
    fail_input("dequantize: {} bytes for {} rows of {} {} values, expected {}", out.size(), last - first,
               extent.columns, dtype_name(dtype), (end - begin) * dtype_bytes(dtype));
  const Run run = kRuns[choose_kernel(kRows)];
  pool.parallel_for(ceil_div(end - begin, kItem), [&](std::int64_t item) {
    alignas(64) std::array<float, kPiece> piece;
    const std::int64_t item_end = std::min(begin + (item + 1) * kItem, end);
    for (std::int64_t at = begin + item * kItem; at < item_end; at += kPiece) {
      const std::int64_t stop = std::min(at + kPiece, item_end);
      run({.tensor = &tensor, .columns = extent.columns, .first = at, .last = stop, .out = piece.data()});
      store(dtype, piece.data(), stop - at, out.data() + (at - begin) * dtype_bytes(dtype));
    }
  });
}

Array<float> dequantize(const QuantizedTensor& tensor, ThreadPool& pool) {
  const Extent extent = extent_of(tensor.shape);
  Array<float> out(extent.elements());
  dequantize_rows(tensor, 0, extent.rows, DType::f32, std::as_writable_bytes(out.span()), pool);
  return out;
}

std::span<const KernelRow> dequantize_kernels() { return kRows; }

}  // namespace halfbyte
