#include "analyze/bound.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "formats/mxfp8.h"
#include "formats/nvfp4.h"
#include "ops/fake_quantize/op.h"
#include "ops/quantize/op.h"

namespace halfbyte {

namespace {

constexpr double kEps8 = 1.0 / 16;           // of E4M3, half its widest step over the value
constexpr std::uint8_t kSmallestNormal = 8;  // E4M3 code of 2^-6

double absmax_of(std::span<const float> values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

// What a block's stored scale is over the ideal one, absmax / 6; 1 for a block of zeros.
double alpha_of(const QuantizedTensor& tensor, std::int64_t block, double absmax) {
  if (absmax == 0) return 1;
  return 6 *
         static_cast<double>(
             nvfp4_step(tensor.spec.global_scale, tensor.scales8[block], tensor.global_scale)) /
         absmax;
}

QuantizedTensor quantized(const float* values, std::int64_t rows, std::int64_t columns, const QuantSpec& spec,
                          std::optional<float> global, ThreadPool& pool) {
  const std::span<const float> all(values, static_cast<std::size_t>(rows * columns));
  return quantize({.dtype = DType::f32, .shape = {rows, columns}, .data = std::as_bytes(all)}, spec, pool,
                  {.name = "activations", .global_scale = global});
}

}  // namespace

BoundCheck check_bound(const float* x, std::int64_t channels, const InputTransform& transform,
                       const EngineInput& input, const QuantSpec& spec, ThreadPool& pool) {
  const std::int64_t rows = input.rows, main = input.main, residual = input.residual, width = main + residual;
  const float* changed = input.changed.data();
  const auto at = [&](std::int64_t j) {
    return std::int64_t{input.residual_at[static_cast<std::size_t>(j)]};
  };
  const QuantizedTensor first = quantized(changed, rows, main, spec, std::nullopt, pool);
  Array<float> rest(rows * residual);
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t j = 0; j < residual; ++j)
      rest[m * residual + j] = changed[m * main + at(j)] - input.rounded[m * width + at(j)];
  const QuantizedTensor second =
      quantized(rest.data(), rows, residual, spec,
                transform.info.shared_scale ? std::optional(first.global_scale) : std::nullopt, pool);

  constexpr QuantSpec kMxfp8{.format = Format::mxfp8_e4m3};
  const std::int64_t mx_block = effective_block(kMxfp8, channels);
  Array<float> mx(rows * channels);
  fake_quantize({.rows = rows,
                 .columns = channels,
                 .x = x,
                 .x_stride = channels,
                 .out = mx.data(),
                 .out_stride = channels,
                 .spec = kMxfp8},
                pool);
  const double largest = std::max(absmax_of({x, static_cast<std::size_t>(rows * channels)}), 1e-300);

  std::vector<BoundCheck> checks(static_cast<std::size_t>(rows));
  pool.parallel_for(rows, [&](std::int64_t m) {
    BoundCheck& check = checks[static_cast<std::size_t>(m)];
    const auto run = [](const float* values, std::int64_t begin, std::int64_t end) {
      return std::span(values + begin, static_cast<std::size_t>(end - begin));
    };
    for (std::int64_t block = 0; block < residual / kNvfp4Block; ++block) {
      const std::int64_t from = block * kNvfp4Block, to = from + kNvfp4Block;
      // In absmax order a residual block belongs to one block; else to several, of which the widest counts.
      double reach = 0, alpha1 = 0;  // reach: largest alpha1 M
      bool normal = true;
      for (std::int64_t j = from; j < to; ++j) {
        const std::int64_t b = at(j) / kNvfp4Block, code = m * (main / kNvfp4Block) + b;
        const double absmax = absmax_of(run(changed + m * main, b * kNvfp4Block, (b + 1) * kNvfp4Block));
        const double alpha = alpha_of(first, code, absmax);
        reach = std::max(reach, alpha * absmax);
        alpha1 = std::max(alpha1, alpha);
        normal = normal && (absmax == 0 || first.scales8[code] >= kSmallestNormal);
      }
      const std::int64_t code2 = m * (residual / kNvfp4Block) + block;
      const double absmax2 = absmax_of(run(rest.data() + m * residual, from, to));
      const double alpha2 = alpha_of(second, code2, absmax2);
      normal = normal && (absmax2 == 0 || second.scales8[code2] >= kSmallestNormal);
      const double bound = reach * alpha2 * kEps8;
      for (std::int64_t j = from; j < to; ++j) {
        const float value = changed[m * main + at(j)];
        const double e =
            std::abs(static_cast<double>(value) - static_cast<double>(input.rounded[m * width + at(j)]) -
                     static_cast<double>(input.rounded[m * width + main + j]));
        ++check.values;
        check.guaranteed += normal;
        (normal ? check.violations : check.above_outside) += e > bound;
        if (normal && bound > 0) check.largest_share = std::max(check.largest_share, e / bound);
        if (normal && absmax2 > 0) check.largest_alpha = std::max(check.largest_alpha, alpha1 * alpha2);
        check.mean_square += e * e / (largest * largest);

        const std::int64_t k = transform.columns[static_cast<std::size_t>(main + j)],
                           mx_first = k / mx_block * mx_block;
        const double mx_absmax =
            absmax_of(run(x + m * channels, mx_first, std::min(channels, mx_first + mx_block)));
        const double mx_e =
            std::abs(static_cast<double>(x[m * channels + k]) - static_cast<double>(mx[m * channels + k]));
        if (mx_absmax > 0)
          check.mxfp8_largest_share = std::max(check.mxfp8_largest_share, mx_e / (2 * mx_absmax * kEps8));
        check.mxfp8_mean_square += mx_e * mx_e / (largest * largest);
      }
    }
  });
  BoundCheck all;
  for (const BoundCheck& check : checks) merge(all, check);
  return all;
}

void merge(BoundCheck& all, const BoundCheck& more) {
  all.values += more.values;
  all.guaranteed += more.guaranteed;
  all.violations += more.violations;
  all.above_outside += more.above_outside;
  all.largest_share = std::max(all.largest_share, more.largest_share);
  all.largest_alpha = std::max(all.largest_alpha, more.largest_alpha);
  all.mean_square += more.mean_square;
  all.mxfp8_largest_share = std::max(all.mxfp8_largest_share, more.mxfp8_largest_share);
  all.mxfp8_mean_square += more.mxfp8_mean_square;
}

}  // namespace halfbyte
