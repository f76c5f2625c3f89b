// The weight that repairs an earlier error: against elimination in plain loops, and in what it is for.
#include "quantize/match_output.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/fail.h"

namespace halfbyte {
namespace {

struct Case {
  std::int64_t channels, rows, tokens;
  std::vector<double> x, original;  // [tokens, channels]
  std::vector<float> w;             // [rows, channels]
  std::vector<double> moment, cross;
};

Case make_case(std::int64_t channels, std::int64_t rows, unsigned seed) {
  Case c{channels, rows, 4 * channels, {}, {}, {}, {}, {}};
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    double previous = 0;
    for (std::int64_t k = 0; k < channels; ++k) {
      previous = 0.6 * previous + normal(random);
      c.original.push_back(previous);
      c.x.push_back(previous + 0.3 * normal(random));
    }
  }
  for (std::int64_t i = 0; i < rows * channels; ++i) c.w.push_back(static_cast<float>(normal(random)));
  const auto size = static_cast<std::size_t>(channels * channels);
  c.moment.assign(size, 0);
  c.cross.assign(size, 0);
  for (std::int64_t t = 0; t < c.tokens; ++t)
    for (std::int64_t j = 0; j < channels; ++j)
      for (std::int64_t k = 0; k < channels; ++k) {
        const auto at = static_cast<std::size_t>(j * channels + k);
        const double xk = c.x[static_cast<std::size_t>(t * channels + k)];
        c.moment[at] += c.x[static_cast<std::size_t>(t * channels + j)] * xk / static_cast<double>(c.tokens);
        c.cross[at] +=
            c.original[static_cast<std::size_t>(t * channels + j)] * xk / static_cast<double>(c.tokens);
      }
  return c;
}

// Row n of W + factor (W G - W H) D^-1 by Gaussian elimination on D z = (W G - W H)^T.
std::vector<double> expected_row(const Case& c, std::int64_t n, double factor) {
  const auto size = static_cast<std::size_t>(c.channels);
  std::vector<std::vector<double>> a(size, std::vector<double>(size + 1));
  double mean = 0;
  for (std::size_t k = 0; k < size; ++k) mean += c.moment[k * size + k] / static_cast<double>(size);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t k = 0; k < size; ++k) {
      a[i][k] = c.moment[i * size + k] + (i == k ? 0.01 * mean : 0);
      a[i][size] += static_cast<double>(c.w[static_cast<std::size_t>(n) * size + k]) *
                    (c.cross[k * size + i] - c.moment[k * size + i]);
    }
  }
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t r = 0; r < size; ++r) {
      if (r == i) continue;
      const double times = a[r][i] / a[i][i];
      for (std::size_t k = i; k <= size; ++k) a[r][k] -= times * a[i][k];
    }
  std::vector<double> row;
  for (std::size_t k = 0; k < size; ++k)
    row.push_back(static_cast<double>(c.w[static_cast<std::size_t>(n) * size + k]) +
                  factor * a[k][size] / a[k][k]);
  return row;
}

double output_error(const Case& c, const std::vector<float>& w) {
  double sum = 0;
  for (std::int64_t t = 0; t < c.tokens; ++t)
    for (std::int64_t n = 0; n < c.rows; ++n) {
      double difference = 0;
      for (std::int64_t k = 0; k < c.channels; ++k) {
        const auto at = static_cast<std::size_t>(n * c.channels + k),
                   of = static_cast<std::size_t>(t * c.channels + k);
        difference += static_cast<double>(w[at]) * c.x[of] - static_cast<double>(c.w[at]) * c.original[of];
      }
      sum += difference * difference;
    }
  return sum;
}

TEST(OutputMatch, EqualsEliminationOnAnyNumberOfThreads) {
  for (const std::int64_t channels : {1, 7, 65, 130}) {
    const Case c = make_case(channels, 70, static_cast<unsigned>(channels));
    std::vector<float> first;
    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      const OutputMatch match(c.moment, c.cross, channels, "input", pool);
      std::vector<float> w = c.w;
      match.move(w.data(), c.rows, channels, 0.5, pool);
      if (first.empty()) first = w;
      EXPECT_EQ(w, first);
    }
    for (const std::int64_t n : {0, 33, 69}) {
      const std::vector<double> row = expected_row(c, n, 0.5);
      for (std::size_t k = 0; k < row.size(); ++k)
        EXPECT_NEAR(static_cast<double>(first[static_cast<std::size_t>(n * channels) + k]), row[k], 1e-5);
    }
  }
}

TEST(OutputMatch, BringsOutputsCloserToTheOriginals) {
  const Case c = make_case(48, 20, 9);
  ThreadPool pool(2);
  const OutputMatch match(c.moment, c.cross, c.channels, "input", pool);
  double before = output_error(c, c.w);
  for (const double factor : {0.25, 0.5, 1.0}) {
    std::vector<float> w = c.w;
    match.move(w.data(), c.rows, c.channels, factor, pool);
    const double error = output_error(c, w);
    EXPECT_LT(error, before) << factor;
    before = error;
  }
}

TEST(OutputMatch, LeavesColumnsBehindAndSameInputsAlone) {
  Case c = make_case(8, 3, 4);
  ThreadPool pool(1);
  std::vector<float> wide;
  for (std::int64_t n = 0; n < c.rows; ++n) {
    wide.insert(wide.end(), c.w.begin() + n * 8, c.w.begin() + (n + 1) * 8);
    wide.push_back(100.0f);
  }
  OutputMatch(c.moment, c.moment, 8, "input", pool).move(wide.data(), c.rows, 9, 1.0, pool);
  for (std::int64_t n = 0; n < c.rows; ++n) {
    EXPECT_EQ(wide[static_cast<std::size_t>(n * 9 + 8)], 100.0f);
    for (std::int64_t k = 0; k < 8; ++k)
      EXPECT_EQ(wide[static_cast<std::size_t>(n * 9 + k)], c.w[static_cast<std::size_t>(n * 8 + k)]);
  }
  c.cross[3] = NAN;
  EXPECT_THROW(OutputMatch(c.moment, c.cross, 8, "input", pool), Error);
}

}  // namespace
}  // namespace halfbyte
