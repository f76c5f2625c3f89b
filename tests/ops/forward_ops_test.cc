// The float32 ops of the forward pass against plain loops in double.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "formats/bf16.h"
#include "ops/attention/op.h"
#include "ops/matmul_bf16/op.h"
#include "ops/matmul_bf16/round.h"
#include "ops/matmul_f32/config.h"
#include "ops/matmul_f32/op.h"
#include "ops/rms_norm/op.h"
#include "ops/rope/op.h"
#include "ops/row_math/op.h"
#include "ops/silu_mul/op.h"

namespace halfbyte {
namespace {

std::vector<float> noise(std::int64_t size, unsigned seed, float scale = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) value = normal(generator);
  return values;
}

double worst(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  return largest;
}

TEST(MatmulF32, MeetsTheReferenceOnRaggedShapesAndAnyThreadCount) {
  const std::int64_t shapes[][3] = {{1, 1, 1},     {1, 257, 33},   {17, 5, 100},
                                    {513, 30, 64}, {40, 1030, 17}, {3, 300, 576}};
  for (const auto& [m, n, k] : shapes) {
    const auto a = noise(m * k, 1), w = noise(n * k, 2), bias = noise(n, 3);
    std::vector<float> expected(static_cast<std::size_t>(m * n)), one(expected), many(expected);
    MatmulF32 args{.m = m,
                   .n = n,
                   .k = k,
                   .activation = a.data(),
                   .activation_stride = k,
                   .weight = w.data(),
                   .weight_stride = k,
                   .bias = bias.data(),
                   .out = expected.data(),
                   .out_stride = n};
    matmul_f32_reference(args);
    ThreadPool pool1(1), pool4(4);
    args.out = one.data();
    matmul_f32(args, pool1);
    args.out = many.data();
    matmul_f32(args, pool4);
    EXPECT_LT(worst(expected, one), 1e-5 * std::sqrt(static_cast<double>(k)) * 4)
        << m << " " << n << " " << k;
    EXPECT_EQ(one, many) << "thread count changed the result";
  }
}

TEST(MatmulF32, TilesCoverAnyShape) {
  for (std::int64_t m : {1, 16, 17, 512, 513, 5000})
    for (std::int64_t n : {1, 255, 1024, 49152}) {
      const auto tile = matmul_f32_tile(m, n);
      EXPECT_GE(tile.m, 1);
      EXPECT_GE(tile.n, 1);
      EXPECT_LE(tile.m, m);
      EXPECT_LE(tile.n, n);
    }
}

// The rounded numbers, to be multiplied in double.
std::vector<float> rounded(std::vector<float> x) {
  for (float& value : x) value = round_to_bf16(value);
  return x;
}

TEST(MatmulBf16, IsTheProductOfTheRoundedNumbers) {
  const std::int64_t shapes[][3] = {{1, 1, 1},     {1, 257, 33},   {17, 5, 100},
                                    {513, 30, 64}, {40, 1030, 17}, {3, 300, 576}};
  ThreadPool pool1(1), pool4(4);
  Bf16Matrix left, right;  // used again for every shape
  for (const auto& [m, n, k] : shapes) {
    const auto a = noise(m * k, 1), w = noise(n * k, 2), bias = noise(n, 3);
    const auto exact_a = rounded(a), exact_w = rounded(w);
    std::vector<float> expected(static_cast<std::size_t>(m * n)), one(expected), many(expected);
    matmul_f32_reference({.m = m,
                          .n = n,
                          .k = k,
                          .activation = exact_a.data(),
                          .activation_stride = k,
                          .weight = exact_w.data(),
                          .weight_stride = k,
                          .bias = bias.data(),
                          .out = expected.data(),
                          .out_stride = n});
    left.assign(a.data(), m, k, pool4);
    right.assign(w.data(), n, k, pool4);
    matmul_bf16(left, right, bias.data(), one.data(), pool1);
    matmul_bf16(left, right, bias.data(), many.data(), pool4);
    EXPECT_LT(worst(expected, one), 1e-5 * std::sqrt(static_cast<double>(k)) * 4)
        << m << " " << n << " " << k;
    EXPECT_EQ(one, many) << "thread count changed the result";
  }
}

TEST(MatmulBf16, RoundsAsTheCodecDoes) {
  std::vector<float> x = noise(1000, 5);
  for (const std::uint32_t bits : {0x3F808000u, 0x3F818000u, 0x7F7FFFFFu, 0x7F800000u, 0xFF800000u,
                                   0x7FC00001u, 0xFFFFFFFFu, 0x80000000u, 0x00000001u, 0x00018000u})
    x.insert(x.begin() + 37, bits_float(bits));
  std::vector<std::uint16_t> codes(x.size());
  for (std::int64_t n : {0, 1, 15, 16, 33, 1010}) {
    codes.assign(codes.size(), 0xABCD);
    encode_bf16_row(x.data(), codes.data(), n);
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(codes[static_cast<std::size_t>(i)], bf16_encode(x[static_cast<std::size_t>(i)])) << i;
    if (n < 1010) {
      ASSERT_EQ(codes[static_cast<std::size_t>(n)], 0xABCD);
    }
  }
}

TEST(MatmulBf16, TransposedProductsOfRowsAndOfThemselves) {
  ThreadPool pool(2);
  Bf16Matrix left, right;
  for (const auto& [rows, m, n] :
       std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {7, 33, 5}, {40, 200, 450}, {100, 450, 193}}) {
    const auto a = noise(rows * m, 1), b = noise(rows * n, 2);
    const auto exact_a = rounded(a), exact_b = rounded(b);
    left.assign(a.data(), rows, m, pool);
    right.assign(b.data(), rows, n, pool);
    std::vector<float> cross(static_cast<std::size_t>(m * n)), own(static_cast<std::size_t>(m * m));
    matmul_bf16_transposed(left, right, cross.data(), pool);
    matmul_bf16_transposed(left, left, own.data(), pool);
    const auto at = [](const std::vector<float>& x, std::int64_t i) {
      return static_cast<double>(x[static_cast<std::size_t>(i)]);
    };
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t r = 0; r < rows; ++r) sum += at(exact_a, r * m + i) * at(exact_b, r * n + j);
        ASSERT_NEAR(at(cross, i * n + j), sum, 1e-4) << rows << " " << i << " " << j;
      }
      for (std::int64_t j = 0; j < m; ++j) {
        double sum = 0;
        for (std::int64_t r = 0; r < rows; ++r) sum += at(exact_a, r * m + i) * at(exact_a, r * m + j);
        ASSERT_NEAR(at(own, i * m + j), sum, 1e-4) << rows << " " << i << " " << j;
        ASSERT_EQ(at(own, i * m + j), at(own, j * m + i));
      }
    }
  }
}

TEST(Attention, MeetsTheReference) {
  struct Case {
    std::int64_t rows, first, heads, kv, dim, window;
  };
  for (const Case& c : {Case{1, 0, 1, 1, 4, 0}, Case{5, 0, 4, 2, 8, 0}, Case{300, 0, 3, 1, 16, 0},
                        Case{1, 200, 9, 3, 64, 0}, Case{130, 70, 6, 3, 12, 0}, Case{200, 0, 2, 1, 8, 16},
                        Case{3, 100, 2, 2, 8, 1}, Case{140, 33, 2, 2, 8, 150}}) {
    const std::int64_t positions = c.first + c.rows;
    const auto q = noise(c.rows * c.heads * c.dim, 4, 2.0f), k = noise(positions * c.kv * c.dim, 5, 2.0f),
               v = noise(positions * c.kv * c.dim, 6);
    std::vector<float> expected(q.size()), found(q.size());
    Attention args{.rows = c.rows,
                   .first_position = c.first,
                   .heads = c.heads,
                   .kv_heads = c.kv,
                   .head_dim = c.dim,
                   .window = c.window,
                   .scale = 1.0f / std::sqrt(static_cast<float>(c.dim)),
                   .q = q.data(),
                   .q_stride = c.heads * c.dim,
                   .k = k.data(),
                   .v = v.data(),
                   .out = expected.data()};
    attention_reference(args);
    args.out = found.data();
    ThreadPool pool(3);
    attention(args, pool);
    EXPECT_LT(worst(expected, found), 2e-5) << c.rows << " rows from " << c.first << ", window " << c.window;
  }
}

TEST(RmsNorm, MeetsItsFormula) {
  for (std::int64_t columns : {1, 7, 8, 64, 577}) {
    const std::int64_t rows = 70;
    const auto x = noise(rows * columns, 7, 3.0f), weight = noise(columns, 8);
    std::vector<float> expected(x.size()), found(x.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (std::int64_t c = 0; c < columns; ++c)
        squares += std::pow(static_cast<double>(x[r * columns + c]), 2);
      for (std::int64_t c = 0; c < columns; ++c)
        expected[r * columns + c] = static_cast<float>(
            x[r * columns + c] / std::sqrt(squares / static_cast<double>(columns) + 1e-5) * weight[c]);
    }
    ThreadPool pool(2);
    rms_norm({.rows = rows,
              .columns = columns,
              .x = x.data(),
              .x_stride = columns,
              .weight = weight.data(),
              .eps = 1e-5f,
              .out = found.data(),
              .out_stride = columns},
             pool);
    EXPECT_LT(worst(expected, found), 5e-6);
  }
}

TEST(Rope, TurnsPairsByPositionTimesFrequency) {
  const std::vector<float> frequencies{1.0f, 0.1f};
  RopeTable table(frequencies);
  table.reserve(12);
  std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8};  // one row, two heads of four
  const std::vector<float> before = x;
  ThreadPool pool(1);
  rope({.rows = 1, .heads = 2, .first_position = 11, .x = x.data(), .x_stride = 8}, table, pool);
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t i = 0; i < 2; ++i) {
      const double angle = 11.0 * static_cast<double>(frequencies[i]), a = before[h * 4 + i],
                   b = before[h * 4 + i + 2];
      EXPECT_NEAR(x[h * 4 + i], a * std::cos(angle) - b * std::sin(angle), 1e-5);
      EXPECT_NEAR(x[h * 4 + i + 2], b * std::cos(angle) + a * std::sin(angle), 1e-5);
    }
}

TEST(RowMath, MeetsDoubleArithmeticAtEveryLength) {
  for (std::int64_t n = 1; n < 70; ++n) {
    const auto p = noise(n, 9, 5.0f), q = noise(n, 10, 5.0f), up = noise(n, 11);
    const auto lse = [](const std::vector<float>& x) {
      double sum = 0;
      for (float value : x) sum += std::exp(static_cast<double>(value));
      return std::log(sum);
    };
    EXPECT_NEAR(log_sum_exp(p.data(), n), lse(p), 1e-5);
    double kl = 0;
    for (std::int64_t i = 0; i < n; ++i) kl += std::exp(p[i] - lse(p)) * ((p[i] - lse(p)) - (q[i] - lse(q)));
    EXPECT_NEAR(kl_divergence(p.data(), lse(p), q.data(), lse(q), n), kl, 1e-5 * (1 + kl));
    std::vector<float> e = p, silu(p.size());
    double sum = 0;
    for (float value : p) sum += std::exp(0.5 * value - 1);
    EXPECT_NEAR(exp_row(e.data(), n, 0.5f, 1.0f), sum, 1e-5 * sum);
    EXPECT_NEAR(e[static_cast<std::size_t>(n - 1)], std::exp(0.5 * p[n - 1] - 1),
                1e-5 * std::exp(0.5 * p[n - 1] - 1));
    ThreadPool pool(1);
    silu_mul(p.data(), up.data(), silu.data(), n, pool);
    for (std::int64_t i = 0; i < n; ++i)
      EXPECT_NEAR(silu[i], p[i] / (1 + std::exp(-static_cast<double>(p[i]))) * up[i],
                  2e-6 * (1 + std::abs(p[i] * up[i])));
    EXPECT_EQ(row_argmax(p.data(), n), std::max_element(p.begin(), p.end()) - p.begin());
  }
}

TEST(RowMath, ExtremesStayFinite) {
  std::vector<float> x{-1e30f, -200.0f, 0.0f, 88.0f};
  EXPECT_NEAR(log_sum_exp(x.data(), 4), 88.0, 1e-6);
  std::vector<float> gate{-1e30f, -200.0f, 200.0f, 1e30f}, up(4, 1.0f), out(4);
  silu_mul_row(gate.data(), up.data(), out.data(), 4);
  EXPECT_NEAR(out[1], 0.0f, 1e-30);
  EXPECT_EQ(out[2], 200.0f);
  EXPECT_EQ(out[3], 1e30f);
}

}  // namespace
}  // namespace halfbyte
