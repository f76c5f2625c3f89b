// The product of 16-bit activations and 4-bit weights by plain loops over the codec, in double.
#include <cmath>
#include <vector>

#include "core/fail.h"
#include "formats/source_dtype.h"
#include "ops/dequantize/op.h"
#include "ops/matmul_w4a16/op.h"

namespace halfbyte {

void check_w4a16_weights(const QuantSpec& spec, std::int64_t rows, std::int64_t columns) {
  validate(spec);
  if (format_info(spec.format).bits != 4)
    fail_input("matmul_w4a16: {} weights, expected a format of 4 bits", to_string(spec));
  const std::int64_t block = effective_block(spec, columns);
  if (rows < 1 || columns < 1 || columns % block)
    fail_input(
        "matmul_w4a16: {} weights of {} rows and {} columns; columns must be a multiple of the block of {}",
        to_string(spec), rows, columns, block);
}

void matmul_w4a16_reference(const MatmulW4A16& args, std::span<double> out, std::span<double> magnitude) {
  const QuantizedTensor& weights = *args.weights;
  check_parts(weights, "matmul_w4a16");
  const Extent w = extent_of(weights.shape), a = extent_of(args.activations.shape);
  check_w4a16_weights(weights.spec, w.rows, w.columns);
  const DType dtype = args.activations.dtype;
  if ((dtype != DType::bf16 && dtype != DType::f16) || a.columns != w.columns)
    fail_input("matmul_w4a16: activations {} of {}, expected {} columns of BF16 or F16",
               to_string(args.activations.shape), dtype_name(dtype), w.columns);
  if (static_cast<std::int64_t>(out.size()) != a.rows * w.rows || magnitude.size() != out.size())
    fail_input("matmul_w4a16: room for {} results, expected {} x {}", out.size(), a.rows, w.rows);
  std::vector<float> row(static_cast<std::size_t>(w.columns));
  for (std::int64_t n = 0; n < w.rows; ++n) {
    dequantize_reference({.tensor = &weights,
                          .columns = w.columns,
                          .first = n * w.columns,
                          .last = (n + 1) * w.columns,
                          .out = row.data()});
    const double bias =
        args.bias.data.empty() ? 0.0 : static_cast<double>(load_element(dtype, args.bias.data.data(), n));
    for (std::int64_t m = 0; m < a.rows; ++m) {
      double sum = bias, absolute = std::abs(bias);
      for (std::int64_t k = 0; k < w.columns; ++k) {
        const double term =
            static_cast<double>(load_element(dtype, args.activations.data.data(), m * w.columns + k)) *
            static_cast<double>(row[static_cast<std::size_t>(k)]);
        sum += term;
        absolute += std::abs(term);
      }
      out[static_cast<std::size_t>(m * w.rows + n)] = sum;
      magnitude[static_cast<std::size_t>(m * w.rows + n)] = absolute;
    }
  }
}

}  // namespace halfbyte
