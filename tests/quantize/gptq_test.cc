// Error feedback against the recurrence in plain loops over the inverse, and what must hold whatever the moments are.
#include "quantize/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "core/fail.h"
#include "ops/dequantize/op.h"
#include "quantize/block_scale.h"
#include "quantize/scale_search.h"
#include "tests/support/quantize_cases.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

using Doubles = std::vector<std::vector<double>>;

std::vector<float> normal_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Second moments of inputs that share a few directions, with channels of very different size. `dead` channels are zero.
std::vector<float> moments(std::int64_t width, unsigned seed, std::initializer_list<std::int64_t> dead = {}) {
  const std::int64_t tokens = 2 * width, shared = 6;
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::lognormal_distribution<double> size(0.0, 1.0);
  const auto n = static_cast<std::size_t>(width);
  Doubles mix(n, std::vector<double>(static_cast<std::size_t>(shared)));
  std::vector<double> sizes(n);
  for (std::size_t k = 0; k < n; ++k) {
    for (double& value : mix[k]) value = normal(random);
    sizes[k] = size(random);
  }
  for (const std::int64_t k : dead) sizes[static_cast<std::size_t>(k)] = 0;
  std::vector<double> sum(n * n), x(n), common(static_cast<std::size_t>(shared));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (double& value : common) value = normal(random);
    for (std::size_t k = 0; k < n; ++k)
      x[k] =
          sizes[k] * (normal(random) + std::inner_product(mix[k].begin(), mix[k].end(), common.begin(), 0.0));
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t k = 0; k < n; ++k) sum[j * n + k] += x[j] * x[k];
  }
  std::vector<float> h(n * n);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = static_cast<float>(sum[i] / static_cast<double>(tokens));
  return h;
}

// U with H^-1 = U^T U, U upper triangular: Gauss-Jordan, then Cholesky.
Doubles inverse_factor(Doubles h) {
  const std::size_t n = h.size();
  Doubles inverse(n, std::vector<double>(n));
  for (std::size_t k = 0; k < n; ++k) inverse[k][k] = 1;
  for (std::size_t k = 0; k < n; ++k) {
    const double pivot = h[k][k];
    for (std::size_t j = 0; j < n; ++j) h[k][j] /= pivot, inverse[k][j] /= pivot;
    for (std::size_t i = 0; i < n; ++i) {
      const double factor = h[i][k];
      if (i == k || factor == 0) continue;
      for (std::size_t j = 0; j < n; ++j)
        h[i][j] -= factor * h[k][j], inverse[i][j] -= factor * inverse[k][j];
    }
  }
  Doubles u(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i; j < n; ++j) {
      double sum = inverse[i][j];
      for (std::size_t k = 0; k < i; ++k) sum -= u[k][i] * u[k][j];
      u[i][j] = j == i ? std::sqrt(sum) : sum / u[i][i];
    }
  return u;
}

struct Case {
  std::int64_t rows, main, residual;
  QuantSpec spec;
  DampingKind kind = DampingKind::relative;

  std::int64_t width() const { return main + residual; }
};

// The recurrence as published, one row after the other.
QuantizedTensor by_recurrence(const Case& c, const std::vector<float>& w, const std::vector<float>& h) {
  ThreadPool pool(1);
  const auto n = static_cast<std::size_t>(c.width()), main = static_cast<std::size_t>(c.main);
  std::vector<float> diagonal(n);
  for (std::size_t k = 0; k < n; ++k) diagonal[k] = h[k * n + k];
  QuantizedTensor out = search_scales(w, {c.rows, c.width()}, {.spec = c.spec, .importance = diagonal}, pool);
  const BlockCodec codec(out);

  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.begin() + c.main,
                   [&](std::size_t a, std::size_t b) { return diagonal[a] > diagonal[b]; });
  double mean = 0, largest = 0;
  for (std::size_t k = 0; k < n; ++k) {
    largest = std::max(largest, static_cast<double>(diagonal[k]));
    if (k < main) mean += static_cast<double>(diagonal[k]) / static_cast<double>(main);
  }
  Doubles damped(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) damped[i][j] = static_cast<double>(h[order[i] * n + order[j]]);
  for (std::size_t i = 0; i < n; ++i)
    damped[i][i] += 0.01 * (c.kind == DampingKind::mean ? mean : damped[i][i]) + 1e-12 * largest;
  const Doubles u = inverse_factor(damped);

  const bool flat = !has_row_blocks(c.spec.format);
  const auto block = static_cast<std::size_t>(effective_block(c.spec, c.width()));
  const std::size_t row_blocks = (n + block - 1) / block;
  const std::size_t fixed = flat ? n : std::min(n, (main + block - 1) / block * block);
  std::vector<std::uint8_t> codes(w.size());
  for (std::size_t row = 0; row < static_cast<std::size_t>(c.rows); ++row) {
    std::vector<double> v(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<double>(w[row * n + order[i]]);
    // Rounds places [first, last) under the scales that scale(column) gives; their codes, v and sum of e^2.
    const auto recur = [&](std::size_t first, std::size_t last, auto scale, std::vector<double>& values) {
      double sum = 0;
      for (std::size_t i = first; i < last; ++i) {
        const BlockScale s = scale(order[i]);
        const std::uint8_t code = codec.encode(static_cast<float>(values[i]), s);
        codes[row * n + order[i]] = code;
        const double e = (values[i] - static_cast<double>(codec.decode(code, s))) / u[i][i];
        for (std::size_t m = i + 1; m < n; ++m) values[m] -= e * u[i][m];
        sum += e * e;
      }
      return sum;
    };
    recur(
        0, fixed,
        [&](std::size_t column) {
          const std::size_t at = flat ? (row * n + column) / block : row * row_blocks + column / block;
          return stored_scale(out, static_cast<std::int64_t>(at), !flat || (at + 1) * block <= w.size());
        },
        v);
    for (std::size_t first = fixed; first < n; first += block) {
      const std::size_t last = std::min(first + block, n);
      float absmax = 0;
      for (std::size_t i = first; i < last; ++i)
        absmax = std::max(absmax, static_cast<float>(std::abs(v[i])));
      double least = std::numeric_limits<double>::infinity();
      std::vector<double> chosen;
      BlockScale best;
      const ScaleCandidates candidates = codec.candidates(absmax, true);
      for (const BlockScale& scale : candidates.span()) {
        std::vector<double> trial = v;
        const double error = recur(
            first, last, [&](std::size_t) { return scale; }, trial);
        if (!(error < least)) continue;
        least = error;
        best = scale;
      }
      recur(
          first, last, [&](std::size_t) { return best; }, v);
      store_scale(out, static_cast<std::int64_t>(row * row_blocks + first / block), best);
    }
  }
  const std::size_t length = flat ? codes.size() : n;
  const std::int64_t bytes = flat ? 0 : out.codes.size() / c.rows;
  for (std::size_t at = 0; at < codes.size(); at += length)
    pack_codes(c.spec.format, std::span(codes).subspan(at, length),
               out.codes.data() + static_cast<std::int64_t>(at / length) * bytes);
  return out;
}

// mean over rows of (w - q) H (w - q)^T
double output_error(const QuantizedTensor& tensor, const std::vector<float>& w, const std::vector<float>& h) {
  ThreadPool pool(1);
  const Array<float> values = dequantize(tensor, pool);
  const auto n = static_cast<std::size_t>(tensor.shape[1]);
  double sum = 0;
  std::vector<double> error(n);
  for (std::size_t row = 0; row < w.size(); row += n) {
    for (std::size_t k = 0; k < n; ++k)
      error[k] =
          static_cast<double>(w[row + k]) - static_cast<double>(values[static_cast<std::int64_t>(row + k)]);
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t k = 0; k < n; ++k) sum += error[j] * static_cast<double>(h[j * n + k]) * error[k];
  }
  return sum;
}

QuantizedTensor feed_back(const Case& c, const std::vector<float>& w, const std::vector<float>& h,
                          int threads = 1) {
  ThreadPool pool(threads);
  const ErrorFeedback feedback(h, c.main, c.residual, {.kind = c.kind}, pool);
  EXPECT_EQ(feedback.damping(), 0.01);
  return feedback.quantize(w, c.spec, std::nullopt, pool);
}

std::vector<QuantSpec> specs() {
  std::vector<QuantSpec> specs{
      {.format = Format::nvfp4},     {.format = Format::nvfp4, .global_scale = GlobalScaleRule::amax},
      {.format = Format::mxfp4},     {.format = Format::int4, .block_size = 32},
      {.format = Format::int4},      {.format = Format::int8},
      {.format = Format::mxfp8_e4m3}};
  for (const Format format : {Format::nf4, Format::fp4})
    for (const bool twice : {false, true})
      specs.push_back({.format = format, .block_size = 32, .double_quant = twice});
  return specs;
}

TEST(ErrorFeedback, GivesTheCodesOfThePublishedRecurrence) {
  for (const QuantSpec& spec : specs())
    for (const auto& [main, residual] : {std::pair{1, 0}, {48, 0}, {131, 0}, {64, 32}, {150, 45}, {96, 7}})
      for (const DampingKind kind : {DampingKind::relative, DampingKind::mean}) {
        const Case c{.rows = 5, .main = main, .residual = residual, .spec = spec, .kind = kind};
        SCOPED_TRACE(to_string(spec) + " " + std::to_string(main) + "+" + std::to_string(residual));
        const std::vector<float> w = normal_values(c.rows * c.width(), static_cast<unsigned>(main));
        const std::vector<float> h = moments(c.width(), static_cast<unsigned>(residual));
        const QuantizedTensor found = feed_back(c, w, h), expected = by_recurrence(c, w, h);
        check_parts(found, "found");
        ASSERT_EQ(test::all_bytes(found), test::all_bytes(expected));
      }
}

// e^T H e of each row, e = w - the decoded tensor, H with relative damping.
std::vector<double> output_errors(const std::vector<float>& w, const QuantizedTensor& quantized,
                                  const std::vector<float>& h, double damping) {
  ThreadPool pool(1);
  const auto n = static_cast<std::size_t>(quantized.shape[1]),
             rows = static_cast<std::size_t>(quantized.shape[0]);
  const Array<float> decoded = dequantize(quantized, pool);
  std::vector<double> errors;
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t k = 0; k < n; ++k) {
        const auto e = [&](std::size_t at) {
          return static_cast<double>(w[row * n + at]) -
                 static_cast<double>(decoded[static_cast<std::int64_t>(row * n + at)]);
        };
        sum += e(j) * e(k) * static_cast<double>(h[j * n + k]) * (j == k ? 1.0 + damping : 1.0);
      }
    errors.push_back(sum);
  }
  return errors;
}

TEST(ErrorFeedback, MovedScalesLeaveLessErrorAndNoneBesideThemLess) {
  constexpr double kDamping = 0.01;
  const std::int64_t rows = 37, width = 256;
  const auto w = normal_values(rows * width, 4);
  const auto h = moments(width, 5, {3, 200});
  for (const Format format : {Format::nf4, Format::fp4, Format::int4, Format::int8}) {
    const QuantSpec spec{.format = format};
    ThreadPool one(1), four(4);
    const ErrorFeedback fixed(h, width, 0, {.damping = kDamping}, one),
        once_more(h, width, 0, {.damping = kDamping, .passes = 2}, one);
    const QuantizedTensor plain = fixed.quantize(w, spec, {}, one),
                          moved = once_more.quantize(w, spec, {}, one);
    EXPECT_EQ(test::all_bytes(moved), test::all_bytes(once_more.quantize(w, spec, {}, four)));
    const auto before = output_errors(w, plain, h, kDamping), after = output_errors(w, moved, h, kDamping);
    for (std::size_t row = 0; row < before.size(); ++row)
      EXPECT_LE(after[row], before[row] * (1 + 1e-6)) << format_name(format) << " row " << row;
    EXPECT_LT(std::accumulate(after.begin(), after.end(), 0.0),
              0.97 * std::accumulate(before.begin(), before.end(), 0.0))
        << format_name(format);
    // No scale of a moved row can be changed a little for the better.
    const std::int64_t blocks = moved.scales.size() / rows;
    for (std::int64_t at = 0; at < moved.scales.size(); at += 7)
      for (const float factor : {0.999f, 1.001f}) {
        QuantizedTensor beside = once_more.quantize(w, spec, {}, one);
        beside.scales[at] *= factor;
        const auto row = static_cast<std::size_t>(at / blocks);
        EXPECT_GE(output_errors(w, beside, h, kDamping)[row], after[row] * (1 - 1e-6))
            << format_name(format) << " scale " << at;
      }
  }
}

TEST(ErrorFeedback, ManyRowsAndThreadsGiveTheSameBytes) {
  for (const QuantSpec& spec : specs()) {
    const Case c{.rows = 83, .main = 161, .residual = 48, .spec = spec};
    const std::vector<float> w = normal_values(c.rows * c.width(), 1), h = moments(c.width(), 2);
    const auto expected = test::all_bytes(by_recurrence(c, w, h));
    for (const int threads : {1, 2, 7})
      ASSERT_EQ(test::all_bytes(feed_back(c, w, h, threads)), expected) << to_string(spec) << " " << threads;
  }
}

TEST(ErrorFeedback, LargeFactorsDoNotDependOnThreads) {
  const Case c{.rows = 40, .main = 400, .residual = 32, .spec = {.format = Format::nvfp4}};
  const std::vector<float> w = normal_values(c.rows * c.width(), 3), h = moments(c.width(), 4);
  const QuantizedTensor one = feed_back(c, w, h);
  EXPECT_EQ(test::all_bytes(one), test::all_bytes(by_recurrence(c, w, h)));
  for (const int threads : {2, 7})
    EXPECT_EQ(test::all_bytes(feed_back(c, w, h, threads)), test::all_bytes(one));
}

TEST(ErrorFeedback, LessensTheErrorOfTheOutput) {
  ThreadPool pool(2);
  for (const QuantSpec& spec : specs())
    for (unsigned seed = 0; seed < 4; ++seed) {
      const Case c{.rows = 48, .main = 128, .residual = has_row_blocks(spec.format) ? 32 : 0, .spec = spec};
      const std::vector<float> w = normal_values(c.rows * c.width(), seed), h = moments(c.width(), seed);
      std::vector<float> diagonal;
      for (std::int64_t k = 0; k < c.width(); ++k)
        diagonal.push_back(h[static_cast<std::size_t>(k * (c.width() + 1))]);
      const double alone = output_error(
          search_scales(w, {c.rows, c.width()}, {.spec = spec, .importance = diagonal}, pool), w, h);
      EXPECT_LT(output_error(feed_back(c, w, h), w, h), 0.7 * alone) << to_string(spec) << " seed " << seed;
    }
}

TEST(ErrorFeedback, IsTheScaleSearchWhereChannelsAreIndependent) {
  ThreadPool pool(2);
  for (const QuantSpec& spec : specs()) {
    const Case c{.rows = 20, .main = 96, .residual = 64, .spec = spec};
    const std::vector<float> w = normal_values(c.rows * c.width(), 5);
    std::vector<float> diagonal = normal_values(c.width(), 6);
    std::vector<float> h(diagonal.size() * diagonal.size());
    for (std::size_t k = 0; k < diagonal.size(); ++k)
      h[k * (diagonal.size() + 1)] = diagonal[k] = std::exp(3 * diagonal[k]);
    EXPECT_EQ(
        test::all_bytes(feed_back(c, w, h)),
        test::all_bytes(search_scales(w, {c.rows, c.width()}, {.spec = spec, .importance = diagonal}, pool)))
        << to_string(spec);
  }
}

TEST(ErrorFeedback, LeavesDeadChannelsAlone) {
  ThreadPool pool(2);
  for (const DampingKind kind : {DampingKind::relative, DampingKind::mean}) {
    const Case c{.rows = 12, .main = 64, .residual = 0, .spec = {.format = Format::nvfp4}, .kind = kind};
    const std::vector<float> w = normal_values(c.rows * c.width(), 7);
    const std::vector<float> h = moments(c.width(), 8, {0, 17, 18, 63});
    std::vector<float> diagonal;
    for (std::int64_t k = 0; k < c.width(); ++k)
      diagonal.push_back(h[static_cast<std::size_t>(k * (c.width() + 1))]);
    const Array<float> found = dequantize(feed_back(c, w, h), pool);
    const Array<float> alone = dequantize(
        search_scales(w, {c.rows, c.width()}, {.spec = c.spec, .importance = diagonal}, pool), pool);
    std::int64_t changed = 0;
    for (std::int64_t row = 0; row < c.rows; ++row)
      for (std::int64_t k = 0; k < c.width(); ++k) {
        if (diagonal[static_cast<std::size_t>(k)] == 0.0f)
          EXPECT_EQ(found[row * c.width() + k], alone[row * c.width() + k]) << row << " " << k;
        else
          changed += found[row * c.width() + k] != alone[row * c.width() + k];
      }
    EXPECT_GT(changed, 50);

    const std::vector<float> nothing(h.size(), 0.0f), none(diagonal.size(), 0.0f);
    EXPECT_EQ(
        test::all_bytes(feed_back(c, w, nothing)),
        test::all_bytes(search_scales(w, {c.rows, c.width()}, {.spec = c.spec, .importance = none}, pool)));
  }
}

TEST(ErrorFeedback, RaisesItsDampingAsFarAsItMust) {
  ThreadPool pool(2);
  const auto damping = [&](float coupling) {
    return ErrorFeedback(std::vector<float>{1, coupling, coupling, 1}, 2, 0, {.damping = 0.01}, pool)
        .damping();
  };
  EXPECT_EQ(damping(0.9f), 0.01);
  EXPECT_NEAR(damping(1.05f), 0.1, 1e-12);
  EXPECT_NEAR(damping(1.5f), 1, 1e-12);
  EXPECT_NEAR(damping(9), 10, 1e-12);
  const std::string message = test::message_of([&] {
    ErrorFeedback(std::vector<float>{1, 12, 12, 1}, 2, 0, {.name = "layers.3.mlp"}, pool);
  });
  EXPECT_NE(message.find("layers.3.mlp: the second moments are not positive definite"), std::string::npos)
      << message;
}

TEST(ErrorFeedback, RefusesWrongInputByName) {
  ThreadPool pool(2);
  std::vector<float> h{2, 1, 1, 1, 2, 1, 1, 1, 2};
  const auto message = [&](std::int64_t main, std::int64_t residual, double damping = 0.01) {
    return test::message_of(
        [&] { ErrorFeedback(h, main, residual, {.damping = damping, .name = "layers.3.mlp"}, pool); });
  };
  const auto says = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(message(3, 0), "(nothing was thrown)");
  says(message(3, 1), "layers.3.mlp: 9 second moments for 3 channels and 1 residual ones");
  says(message(4, -1), "layers.3.mlp: 9 second moments");
  says(message(3, 0, -1), "layers.3.mlp: a damping of -1");
  says(message(3, 0, std::numeric_limits<double>::quiet_NaN()), "layers.3.mlp: a damping of nan");
  h[5] = std::numeric_limits<float>::quiet_NaN();
  says(message(2, 1), "layers.3.mlp: the second moment of channels 1 and 2 is nan");
  h[5] = 1;
  h[8] = -1;
  says(message(2, 1), "layers.3.mlp: the second moment of channels 2 and 2 is -1");
  h[8] = 2;
  const ErrorFeedback feedback(h, 2, 1, {}, pool);
  const auto refused = [&](const std::vector<float>& w, const QuantSpec& spec) {
    return test::message_of([&] { feedback.quantize(w, spec, std::nullopt, pool, "layers.3.mlp.up_proj"); });
  };
  says(refused({1, 2, 3, 4}, {.format = Format::nvfp4}), "layers.3.mlp.up_proj: 4 weights, expected 1 x 3");
  says(refused({1, 2, std::numeric_limits<float>::infinity()}, {.format = Format::nf4}),
       "layers.3.mlp.up_proj: the weight in row 0, column 2 is inf");
  says(refused({1, 2, 3}, {.format = Format::bf16}), "layers.3.mlp.up_proj: bf16 has no scales");
  EXPECT_EQ(feedback.quantize({}, {.format = Format::nvfp4}, std::nullopt, pool).codes.size(), 0);
}

}  // namespace
}  // namespace halfbyte
