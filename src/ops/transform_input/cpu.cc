#include <algorithm>
#include <cmath>

#include "core/tensor.h"
#include "ops/transform_input/op.h"

namespace halfbyte {

void hadamard_in_place(float* x, std::int64_t n) {
  for (std::int64_t half = 1; half < n; half *= 2)
    for (std::int64_t first = 0; first < n; first += 2 * half)
      for (std::int64_t i = first; i < first + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void transform_input(const TransformInput& args, ThreadPool& pool) {
  const std::int64_t channels = args.channels;
  if (args.rows == 0 || channels == 0) return;
  const std::int64_t rows_per_item = std::max<std::int64_t>(1, 32768 / channels);
  pool.parallel_for(ceil_div(args.rows, rows_per_item), [&](std::int64_t item) {
    Array<float> row(channels);
    const std::int64_t last = std::min(args.rows, (item + 1) * rows_per_item);
    for (std::int64_t m = item * rows_per_item; m < last; ++m) {
      std::copy_n(args.x + m * channels, channels, row.data());
      if (args.scale && args.direction == ScaleDirection::divide)
        for (std::int64_t k = 0; k < channels; ++k) row[k] /= args.scale[k];
      if (args.scale && args.direction == ScaleDirection::multiply)
        for (std::int64_t k = 0; k < channels; ++k) row[k] *= args.scale[k];
      if (args.hadamard > 1)
        for (std::int64_t k = 0; k < channels; k += args.hadamard)
          hadamard_in_place(row.data() + k, args.hadamard);
      float* out = args.out + m * args.width;
      if (!args.columns) {
        std::copy_n(row.data(), channels, out);
      } else {
        for (std::int64_t j = 0; j < args.width; ++j)
          out[j] = args.columns[j] < 0 ? 0.0f : row[args.columns[j]];
      }
    }
  });
}

}  // namespace halfbyte
