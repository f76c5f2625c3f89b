// Scale search: every block against a brute force over the scalar codecs, on every instruction set and number of threads.
#include "quantize/scale_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "core/fail.h"
#include "formats/bnb_block.h"
#include "formats/fp4.h"
#include "formats/int4.h"
#include "formats/int8.h"
#include "formats/mxfp4.h"
#include "formats/mxfp8.h"
#include "formats/nf4.h"
#include "ops/dequantize/op.h"
#include "ops/quantize/op.h"
#include "tests/support/quantize_cases.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

constexpr float kShrunk[] = {1.0f, 0.98f, 0.96f, 0.94f, 0.92f, 0.9f, 0.87f, 0.84f};

// A scale as it is stored, and how values are rounded under it.
struct Trial {
  float stored;
  std::function<float(float)> round;
};

// The candidates of a block, from the cards of the formats.
std::vector<Trial> trials(const QuantSpec& spec, float absmax, bool full, float global) {
  std::vector<Trial> all;
  const auto clamp = [](int code, int low, int high) {
    return static_cast<std::uint8_t>(std::min(std::max(code, low), high));
  };
  switch (spec.format) {
    case Format::nvfp4: {
      const GlobalScaleRule rule = spec.global_scale;
      const int c = nvfp4_encode_scale(rule, absmax, global, DType::f32);
      std::vector<int> offsets{0};
      for (int i = 1; i <= 8; ++i) offsets.insert(offsets.end(), {-i, i});
      for (const int offset : offsets) {
        const std::uint8_t code = clamp(c + offset, 1, 126);
        const float step = nvfp4_step(rule, code, global);
        if (step == 0.0f && offset) continue;
        all.push_back({static_cast<float>(code),
                       [=](float x) { return nvfp4_decode(nvfp4_encode(rule, x, step), step); }});
      }
      return all;
    }
    case Format::mxfp4:
    case Format::mxfp8_e4m3:
    case Format::mxfp8_e5m2: {
      const MxElement element = spec.format == Format::mxfp4        ? kMxE2m1
                                : spec.format == Format::mxfp8_e4m3 ? kMxE4m3
                                                                    : kMxE5m2;
      const int c = mx_encode_scale(spec.mx_scale, element, absmax, DType::f32);
      for (const int offset : {0, -1, 1}) {
        const std::uint8_t code = clamp(c + offset, 0, 254);
        const float scale = e8m0_decode(code);
        const MxScaleRule rule = spec.mx_scale;
        const Format format = spec.format;
        all.push_back({static_cast<float>(code), [=](float x) {
                         if (format == Format::mxfp4)
                           return mxfp4_decode(mxfp4_encode(rule, x, scale, DType::f32), scale);
                         if (format == Format::mxfp8_e4m3)
                           return mxfp8_e4m3_decode(mxfp8_e4m3_encode(rule, x, scale, DType::f32), scale);
                         return mxfp8_e5m2_decode(mxfp8_e5m2_encode(rule, x, scale, DType::f32), scale);
                       }});
      }
      return all;
    }
    case Format::nf4:
    case Format::fp4:
      for (const float factor : kShrunk) {
        const BnbScale scale = bnb_scale(absmax * factor, full);
        const bool nf4 = spec.format == Format::nf4;
        all.push_back({scale.stored, [=](float x) {
                         const float v = bnb_normalise(scale, x);
                         return (nf4 ? nf4_decode(nf4_encode(v)) : fp4_decode(fp4_encode(v))) * scale.stored;
                       }});
      }
      return all;
    case Format::int4:
    case Format::int8:
      for (const float factor : kShrunk) {
        const bool four = spec.format == Format::int4;
        const float scale = (four ? int4_scale(absmax) : int8_scale(absmax)) * factor;
        all.push_back({scale, [=](float x) {
                         return four ? int4_decode(int4_encode(x, scale), scale)
                                     : int8_decode(int8_encode(x, scale), scale);
                       }});
      }
      return all;
    case Format::bf16:
      break;
  }
  return all;
}

double weighted_error(const Trial& trial, std::span<const float> x, std::span<const float> h) {
  double sums[16] = {};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = static_cast<double>(trial.round(x[i]) - x[i]);
    sums[i % 16] += error * error * static_cast<double>(h[i]);
  }
  for (std::size_t half = 8; half; half /= 2)
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

// What search_scales must choose (absmax before double quantization, scale codes as numbers), and the rounded values.
struct Expected {
  std::vector<float> scales, values;
};
Expected brute_force(const QuantSpec& spec, std::int64_t rows, std::int64_t columns,
                     const std::vector<float>& w, const std::vector<float>& h, float global) {
  Expected expected;
  const bool flat = format_info(spec.format).axis == BlockAxis::flat;
  const auto length = static_cast<std::size_t>(flat ? rows * columns : columns);
  const auto block = static_cast<std::size_t>(effective_block(spec, columns));
  for (std::size_t row = 0; row < w.size(); row += length)
    for (std::size_t first = row; first < row + length; first += block) {
      const std::size_t count = std::min(block, row + length - first);
      std::vector<float> weights(count, 1.0f);
      float absmax = 0.0f;
      for (std::size_t i = 0; i < count; ++i) {
        if (!h.empty()) weights[i] = h[(first + i) % static_cast<std::size_t>(columns)];
        absmax = std::max(absmax, std::abs(w[first + i]));
      }
      const std::span<const float> x(w.data() + first, count);
      const std::vector<Trial> all = trials(spec, absmax, count == block, global);
      const Trial* best = &all.front();
      double least = std::numeric_limits<double>::infinity();
      for (const Trial& trial : all) {
        const double error = weighted_error(trial, x, weights);
        if (!(error < least)) continue;
        least = error;
        best = &trial;
      }
      expected.scales.push_back(best->stored);
      for (const float value : x) expected.values.push_back(best->round(value));
    }
  return expected;
}

std::vector<float> importances(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<float> spread(0.0f, 3.0f);
  std::vector<float> h(static_cast<std::size_t>(count));
  for (float& value : h) value = random() % 9 ? spread(random) : 0.0f;
  return h;
}

std::vector<float> stored_scales(const QuantizedTensor& tensor) {
  std::vector<float> scales(tensor.scales.begin(), tensor.scales.end());
  for (const std::uint8_t code : tensor.scales8) scales.push_back(static_cast<float>(code));
  return scales;
}

// Every format, block size and rule, without double quantization and without other ways to choose block scales.
std::vector<QuantSpec> specs() {
  std::vector<QuantSpec> specs;
  for (const QuantSpec& spec : test::all_specs())
    if (spec == QuantSpec{.format = spec.format,
                          .block_size = spec.block_size,
                          .global_scale = spec.global_scale,
                          .mx_scale = spec.mx_scale})
      specs.push_back(spec);
  return specs;
}

// Checks a search of awkward values, then that every instruction set and number of threads gives the same bytes.
void check_search(const QuantSpec& spec, std::int64_t rows, std::int64_t columns,
                  const std::vector<float>& h) {
  ThreadPool one(1), seven(7);
  SCOPED_TRACE(to_string(spec) + " " + std::to_string(rows) + "x" + std::to_string(columns));
  const std::vector<float> w = test::awkward_values(rows * columns, static_cast<unsigned>(rows + columns));
  const ScaleSearch search{.spec = spec, .importance = h};
  const QuantizedTensor first = search_scales(w, {rows, columns}, search, one);
  const Expected expected = brute_force(spec, rows, columns, w, h, first.global_scale);
  ASSERT_EQ(stored_scales(first), expected.scales);
  const Array<float> values = dequantize(first, one);
  for (std::int64_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], expected.values[static_cast<std::size_t>(i)]) << i;
  test::for_each_target([&](const std::string& target) {
    ASSERT_EQ(test::all_bytes(search_scales(w, {rows, columns}, search, one)), test::all_bytes(first))
        << target;
  });
  ASSERT_EQ(test::all_bytes(search_scales(w, {rows, columns}, search, seven)), test::all_bytes(first));
}

TEST(ScaleSearch, IsTheBestOfAllCandidatesOnEveryTarget) {
  constexpr std::int64_t kShapes[][2] = {{1, 1}, {3, 16}, {5, 33}, {7, 130}, {2, 4097}, {33, 257}};
  for (const auto& [rows, columns] : kShapes)
    for (const QuantSpec& spec : specs()) {
      check_search(spec, rows, columns, {});
      check_search(spec, rows, columns, importances(columns, 3));
    }
}

TEST(ScaleSearch, FlatTensorsOfManyPiecesHaveNoSeams) {
  for (const Format format : {Format::nf4, Format::fp4})
    check_search({.format = format}, 9, 9001, importances(9001, 3));
}

// Scales alone decide: where they are those of quantize(), so are all bytes.
TEST(ScaleSearch, KeepsQuantizesBytesWhereNothingCounts) {
  ThreadPool pool(2);
  const std::int64_t rows = 9, columns = 200;
  const std::vector<float> w = test::awkward_values(rows * columns, 8);
  const std::vector<float> nothing(static_cast<std::size_t>(columns), 0.0f);
  const TensorView view{.dtype = DType::f32, .shape = {rows, columns}, .data = std::as_bytes(std::span(w))};
  for (const QuantSpec& spec : specs()) {
    const QuantizedTensor plain = quantize(view, spec, pool);
    const std::optional<float> global =
        spec.format == Format::nvfp4 ? std::optional(plain.global_scale) : std::nullopt;
    const QuantizedTensor found = search_scales(
        w, {rows, columns}, {.spec = spec, .importance = nothing, .global_scale = global}, pool);
    EXPECT_EQ(test::all_bytes(found), test::all_bytes(plain)) << to_string(spec);
  }
}

TEST(ScaleSearch, DoubleQuantizationKeepsTheSearchedAbsmaxAndTheNearestCodes) {
  ThreadPool pool(2);
  const std::int64_t rows = 17, columns = 1000;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> w(static_cast<std::size_t>(rows * columns));
  for (float& value : w) value = normal(random);
  std::fill_n(w.begin() + 3000, 700, 0.0f);
  const std::vector<float> h = importances(columns, 5);
  for (const Format format : {Format::nf4, Format::fp4}) {
    const QuantSpec once{.format = format}, twice{.format = format, .double_quant = true};
    const QuantizedTensor full = search_scales(w, {rows, columns}, {.spec = once, .importance = h}, pool);
    const QuantizedTensor kept = search_scales(w, {rows, columns}, {.spec = twice, .importance = h}, pool);
    check_parts(kept, "kept");
    const Array<float> values = dequantize(kept, pool);
    for (std::int64_t i = 0; i < values.size(); ++i) {
      const float absmax = block_scale_f32(kept, i / 64), x = w[static_cast<std::size_t>(i)];
      // Eight bits hold an absmax to a 28th of how far its group lies from the mean.
      ASSERT_NEAR(absmax, full.scales[i / 64], kept.nested_absmax[i / 64 / 256] / 28) << i;
      float nearest = std::abs(x);
      for (std::uint8_t code = 0; code < 16; ++code)
        nearest = std::min(
            nearest, std::abs((format == Format::nf4 ? nf4_decode(code) : fp4_decode(code)) * absmax - x));
      ASSERT_NEAR(std::abs(values[i] - x), nearest, 1e-6f) << i;
    }
  }
}

TEST(ScaleSearch, LessensTheErrorThatCounts) {
  ThreadPool pool(2);
  const std::int64_t rows = 64, columns = 512;
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<float> w(static_cast<std::size_t>(rows * columns));
  for (float& value : w) value = normal(random);
  const std::vector<float> h = importances(columns, 7);
  const TensorView view{.dtype = DType::f32, .shape = {rows, columns}, .data = std::as_bytes(std::span(w))};
  const auto error_of = [&](const QuantizedTensor& tensor) {
    const Array<float> values = dequantize(tensor, pool);
    double sum = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double error = static_cast<double>(values[static_cast<std::int64_t>(i)] - w[i]);
      sum += error * error * static_cast<double>(h[i % static_cast<std::size_t>(columns)]);
    }
    return sum;
  };
  for (const Format format : {Format::nvfp4, Format::mxfp4, Format::nf4, Format::fp4, Format::int4}) {
    const QuantSpec spec{.format = format};
    const double plain = error_of(quantize(view, spec, pool));
    const double found = error_of(search_scales(w, {rows, columns}, {.spec = spec, .importance = h}, pool));
    EXPECT_LT(found, (format == Format::mxfp4   ? 0.95
                      : format == Format::nvfp4 ? 0.7
                                                : 0.9) *
                         plain)
        << format_name(format);
  }
}

TEST(SearchGlobalScale, LeavesRoomForLargerBlockScales) {
  using enum GlobalScaleRule;
  EXPECT_EQ(search_global_scale(amax, 1536.0f, DType::f32), 1.0f);
  EXPECT_EQ(search_global_scale(modelopt, 1536.0f, DType::f32), 1.0f);
  EXPECT_EQ(search_global_scale(compressed_tensors, 1536.0f, DType::f32), 1.0f);
  EXPECT_EQ(search_global_scale(pow2, 1536.0f, DType::f32), 1.0f);
  EXPECT_EQ(search_global_scale(pow2, 1537.0f, DType::f32), 2.0f);
  for (const GlobalScaleRule rule : {pow2, amax, modelopt, compressed_tensors})
    for (const float largest : {0.0f, 1e-30f, 3.4e38f})
      if (rule != modelopt || largest > 0.0f) {
        EXPECT_TRUE(nvfp4_is_global_scale(rule, search_global_scale(rule, largest, DType::f32)))
            << global_scale_rule_name(rule) << " " << largest;
      }
}

TEST(ScaleSearch, TakesEmptyTensors) {
  ThreadPool pool(2);
  for (const Shape& shape : {Shape{0}, Shape{0, 64}, Shape{3, 0}})
    for (const QuantSpec& spec : specs()) {
      const QuantizedTensor found = search_scales({}, shape, {.spec = spec}, pool);
      check_parts(found, "empty");
      EXPECT_EQ(found.codes.size(), 0);
    }
}

TEST(ScaleSearch, RefusesWrongInputWithItsPlace) {
  ThreadPool pool(2);
  std::vector<float> w(2 * 40, 1.0f), h(40, 1.0f);
  const auto message = [&](const QuantSpec& spec, std::optional<float> global = std::nullopt) {
    return test::message_of([&] {
      search_scales(w, {2, 40}, {.spec = spec, .importance = h, .global_scale = global, .name = "layer.w"},
                    pool);
    });
  };
  const auto says = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(message({.format = Format::bf16}), "layer.w: bf16 has no scales");
  says(message({.format = Format::nvfp4}, 0.0f), "layer.w: 0 cannot be a global scale");
  h[7] = -1.0f;
  says(message({.format = Format::nf4}), "layer.w: the importance of column 7 is -1");
  h[7] = std::numeric_limits<float>::quiet_NaN();
  says(message({.format = Format::nf4}), "layer.w: the importance of column 7 is nan");
  h.pop_back();
  says(message({.format = Format::nf4}), "layer.w: 39 importances for 40 columns");
  w[43] = std::numeric_limits<float>::infinity();
  says(message({.format = Format::nf4}), "layer.w: the weight in row 1, column 3 is inf");
  w.pop_back();
  says(message({.format = Format::nf4}), "layer.w: 79 weights, expected 2 x 40");
}

}  // namespace
}  // namespace halfbyte
