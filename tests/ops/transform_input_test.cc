// Scales, rotation and gather before rounding: against their definitions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "ops/augment/op.h"
#include "ops/transform_input/op.h"

namespace halfbyte {
namespace {

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

TEST(Hadamard, IsTheSylvesterMatrixOverItsRoot) {
  for (const std::int64_t n : {1, 2, 4, 16, 64, 512}) {
    const std::vector<float> x = random_values(static_cast<std::size_t>(n), 7);
    std::vector<float> y = x;
    hadamard_in_place(y.data(), n);
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < n; ++j)
        sum += (std::popcount(static_cast<unsigned>(i & j)) % 2 ? -1.0 : 1.0) *
               static_cast<double>(x[static_cast<std::size_t>(j)]);
      EXPECT_NEAR(y[static_cast<std::size_t>(i)], sum / std::sqrt(static_cast<double>(n)), 1e-5);
    }
    hadamard_in_place(y.data(), n);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-5);
  }
  static_assert(largest_power_of_two_in(576) == 64 && largest_power_of_two_in(1536) == 512 &&
                largest_power_of_two_in(7) == 1);
}

TEST(TransformInput, ScalesThenRotatesThenGathers) {
  const std::vector<float> x{1, 2, 3, 4, 10, 20, 30, 40}, scale{1, 2, 3, 4};
  const std::vector<std::int32_t> columns{2, 0, 1, 3, -1, 0};
  ThreadPool pool(2);
  std::vector<float> out(12);
  TransformInput args{.rows = 2,
                      .channels = 4,
                      .x = x.data(),
                      .scale = scale.data(),
                      .hadamard = 4,
                      .columns = columns.data(),
                      .width = 6,
                      .out = out.data()};
  transform_input(args, pool);
  // x / scale = 1 1 1 1, rotated by ones over two: 2 0 0 0.
  EXPECT_EQ(out, (std::vector<float>{0, 2, 0, 0, 0, 2, 0, 20, 0, 0, 0, 20}));
  args.direction = ScaleDirection::multiply;
  args.hadamard = 2;
  transform_input(args, pool);
  const auto root =
      static_cast<float>(1.0 / std::sqrt(2.0));  // x * scale = 1 4 9 16: (5, -3, 25, -7) over the root of 2
  EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 6),
            (std::vector<float>{25 * root, 5 * root, -3 * root, -7 * root, 0, 5 * root}));
}

TEST(TransformInput, LeavesTheProductAsItWas) {
  const std::int64_t rows = 9, channels = 96;
  const std::vector<float> x = random_values(rows * channels, 1), w = random_values(5 * channels, 2);
  std::vector<float> scale = random_values(channels, 3);
  for (float& s : scale) s = std::exp(s);
  std::vector<std::int32_t> columns(channels);
  for (std::int64_t k = 0; k < channels; ++k)
    columns[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(k * 5 % channels);
  const auto transformed = [&](const std::vector<float>& values, ScaleDirection direction, int threads) {
    ThreadPool pool(threads);
    std::vector<float> out(values.size());
    transform_input({.rows = static_cast<std::int64_t>(values.size()) / channels,
                     .channels = channels,
                     .x = values.data(),
                     .scale = scale.data(),
                     .direction = direction,
                     .hadamard = 32,
                     .columns = columns.data(),
                     .width = channels,
                     .out = out.data()},
                    pool);
    return out;
  };
  const auto tx = transformed(x, ScaleDirection::divide, 2), tw = transformed(w, ScaleDirection::multiply, 1);
  EXPECT_EQ(tx, transformed(x, ScaleDirection::divide, 1));
  for (std::size_t m = 0; m < rows; ++m)
    for (std::size_t n = 0; n < 5; ++n) {
      double before = 0, after = 0;
      for (std::size_t k = 0; k < static_cast<std::size_t>(channels); ++k) {
        before += static_cast<double>(x[m * 96 + k]) * static_cast<double>(w[n * 96 + k]);
        after += static_cast<double>(tx[m * 96 + k]) * static_cast<double>(tw[n * 96 + k]);
      }
      EXPECT_NEAR(before, after, 1e-3);
    }
}

TEST(Augment, AppendsTheRoundedResidual) {
  const std::int64_t rows = 6, columns = 64;
  const std::vector<float> x = random_values(rows * columns, 11);
  const std::vector<std::int32_t> residual{5, 63, 0, 17, 1, 2, 3, 4, 40, 41, 42, 43, 20, 21, 22, 23};
  ThreadPool pool(2);
  for (const ScaleScope scope : {ScaleScope::tensor, ScaleScope::row})
    for (const bool shared : {false, true}) {
      const auto fake = [&](const std::vector<float>& in, std::int64_t width) {
        std::vector<float> out(in.size());
        fake_quantize({.rows = rows,
                       .columns = width,
                       .x = in.data(),
                       .x_stride = width,
                       .out = out.data(),
                       .out_stride = width,
                       .spec = {.format = Format::nvfp4},
                       .scope = scope,
                       .global_scale = {}},
                      pool);
        return out;
      };
      const std::vector<float> q = fake(x, columns);
      std::vector<float> r, both;
      for (std::size_t m = 0; m < rows; ++m) {
        both.insert(both.end(), x.begin() + static_cast<std::ptrdiff_t>(m) * columns,
                    x.begin() + static_cast<std::ptrdiff_t>(m + 1) * columns);
        for (const std::int32_t k : residual) {
          const std::size_t at = m * 64 + static_cast<std::size_t>(k);
          r.push_back(x[at] - q[at]);
          both.push_back(x[at] - q[at]);
        }
      }
      const std::vector<float> qr = fake(r, 16), qboth = fake(both, 80);
      std::vector<float> out(rows * 80);
      augment({.rows = rows,
               .columns = columns,
               .x = x.data(),
               .residual = residual.data(),
               .residual_count = 16,
               .spec = {.format = Format::nvfp4},
               .scope = scope,
               .shared_scale = shared,
               .out = out.data()},
              pool);
      for (std::size_t m = 0; m < rows; ++m)
        for (std::size_t j = 0; j < 80; ++j) {
          if (j < 64) {
            EXPECT_EQ(out[m * 80 + j], q[m * 64 + j]);
          }
          if (shared) {
            EXPECT_EQ(out[m * 80 + j], qboth[m * 80 + j]);
          } else if (j >= 64) {
            EXPECT_EQ(out[m * 80 + j], qr[m * 16 + j - 64]);
          }
        }
    }
}

}  // namespace
}  // namespace halfbyte
