// Residual channels: how many and which, what is planned and written, and the identity and error bound the method rests on.
#include "quantize/arc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "core/fail.h"
#include "ops/augment/op.h"
#include "ops/dequantize/op.h"
#include "ops/quantize/op.h"
#include "quantize/write.h"

namespace halfbyte {
namespace {

using Kind = ResidualRule::Kind;

TEST(ResidualChannels, FollowTheirRule) {
  std::vector<float> absmax(320, 1.0f);
  absmax[7] = 100.0f;
  for (std::size_t k = 100; k < 120; ++k) absmax[k] = 20.0f;
  const auto count = [&](ResidualRule rule, std::int64_t block = 16, double cap = 100) {
    return residual_channels(absmax, {.rule = rule, .cap_percent = cap}, block);
  };
  EXPECT_EQ(count({Kind::tau, 3}), 32);   // 21 above 12.5
  EXPECT_EQ(count({Kind::tau, 2}), 16);   // 1 above 25
  EXPECT_EQ(count({Kind::tau, 7}), 320);  // all above 0.78
  EXPECT_EQ(count({Kind::tau, 3}, 64), 64);
  EXPECT_EQ(count({Kind::tau, 3}, 16, 10), 32);
  EXPECT_EQ(count({Kind::tau, 7}, 16, 10), 32);  // cap 10 % of 320
  EXPECT_EQ(count({Kind::tau, 7}, 64, 30), 64);  // cap 96 is one and a half blocks
  EXPECT_EQ(count({Kind::fixed, 0}), 0);
  EXPECT_EQ(count({Kind::fixed, 17}), 32);
  EXPECT_EQ(count({Kind::fixed, 1000}), 320);
  EXPECT_EQ(count({Kind::percent, 5}), 16);
  EXPECT_EQ(count({Kind::percent, 5.5}), 32);  // 17 channels
  EXPECT_EQ(count({Kind::energy, 50}), 16);    // 100 + 12 * 20 of 799, half is 399.5
  EXPECT_EQ(count({Kind::energy, 100}), 320);
  EXPECT_EQ(residual_channels(absmax, {.rule = {Kind::tau, 7}, .cap_channels = 40, .cap_percent = 100}, 16),
            32);
}

TEST(ResidualChannels, RuleIsReadFromText) {
  EXPECT_EQ(parse_residual_rule("tau").value, 3);
  EXPECT_EQ(parse_residual_rule("tau=2.5").value, 2.5);
  EXPECT_EQ(parse_residual_rule("energy").value, 95);
  EXPECT_EQ(parse_residual_rule("fixed=128").kind, Kind::fixed);
  EXPECT_EQ(parse_residual_rule("percent=10").value, 10);
  for (const char* bad :
       {"", "tau=", "tau=x", "percent=101", "energy=-1", "fixed=1e30", "largest", "tau=3 ", "percent=nan"})
    EXPECT_THROW(parse_residual_rule(bad), Error) << bad;
}

TEST(InterleavedColumns, AreAPermutationOfBlocks) {
  EXPECT_EQ(interleaved_columns(6, 4, 2), (std::vector<std::int32_t>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5}));
  std::vector<std::int32_t> columns = interleaved_columns(576, 64, 16);
  EXPECT_EQ(columns[16], 576);
  std::ranges::sort(columns);
  for (std::size_t i = 0; i < columns.size(); ++i) ASSERT_EQ(columns[i], static_cast<std::int32_t>(i));
  EXPECT_EQ(columns.size(), 640u);
}

// Inputs of different kinds, rows x columns.
enum class Shape2 { normal, heavy, adversarial };
std::vector<float> values_of(Shape2 kind, std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::cauchy_distribution<float> cauchy;
  std::vector<float> values(count);
  for (float& v : values) {
    switch (kind) {
      case Shape2::normal:
        v = normal(random);
        break;
      case Shape2::heavy:
        v = std::clamp(cauchy(random), -1e4f, 1e4f);
        break;
      case Shape2::adversarial: {
        // Exact ties of E2M1 and its saturation, zeros of both signs, extremes of the scale's range.
        constexpr std::array<float, 12> kHard{0.0f,  -0.0f, 0.25f, -0.75f, 1.25f, 1.75f,
                                              -2.5f, 3.5f,  5.0f,  6.0f,   1e-6f, 2688.0f};
        v = kHard[random() % kHard.size()] * (random() % 4 ? 1.0f : 1.0f / 1024.0f);
        break;
      }
    }
  }
  return values;
}

// Twice the level times 2^9 times the scale of a value: an integer, the value in units of global / 2^10.
std::int64_t units(const QuantizedTensor& t, std::int64_t row, std::int64_t column) {
  const std::int64_t width = t.shape[1];
  const std::uint8_t byte = t.codes[row * (width / 2) + column / 2];
  const std::uint8_t code = column % 2 ? byte >> 4 : byte & 15;
  const float scale = e4m3_decode(t.scales8[row * (width / 16) + column / 16]);
  return static_cast<std::int64_t>(2 * e2m1_decode(code)) * static_cast<std::int64_t>(scale * 512);
}

using Wide = __int128;

class ArcIdentity : public testing::TestWithParam<Shape2> {};

TEST_P(ArcIdentity, AugmentedProductIsTheSumOfBothExactly) {
  ThreadPool pool(2);
  std::int64_t guaranteed = 0, compensated = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const std::int64_t rows = 1 + random() % 7, outputs = 1 + random() % 9,
                       channels = 16 * (1 + random() % 8);
    const std::int64_t residual = 16 * (random() % (channels / 16 + 1));
    const bool shared = random() % 2;
    std::vector<float> x = values_of(GetParam(), static_cast<std::size_t>(rows * channels), random);
    const std::vector<float> w = values_of(GetParam(), static_cast<std::size_t>(outputs * channels), random);

    std::vector<float> absmax(static_cast<std::size_t>(channels));
    for (std::size_t i = 0; i < x.size(); ++i) {
      float& largest = absmax[i % absmax.size()];
      largest = std::max(largest, std::abs(x[i]));
    }
    InputTransform input;
    input.info = {.method = "arc",
                  .channels = channels,
                  .width = channels + residual,
                  .residual = residual,
                  .gathered = true};
    input.columns.resize(absmax.size());
    std::iota(input.columns.begin(), input.columns.end(), 0);
    std::ranges::stable_sort(input.columns, [&](auto a, auto b) {
      return absmax[static_cast<std::size_t>(a)] > absmax[static_cast<std::size_t>(b)];
    });
    for (std::int64_t j = 0; j < residual; ++j)
      input.columns.push_back(input.columns[static_cast<std::size_t>(j)]);
    const std::vector<std::int32_t> places = residual_positions(input);
    for (std::size_t j = 0; j < places.size(); ++j) ASSERT_EQ(places[j], static_cast<std::int32_t>(j));

    const QuantSpec spec{.format = Format::nvfp4};
    const auto view = [](const auto& values, std::int64_t height) {
      return TensorView{
          .dtype = DType::f32,
          .shape = {height, static_cast<std::int64_t>(values.size()) / height},
          .data = std::as_bytes(std::span(values.data(), static_cast<std::size_t>(values.size())))};
    };
    // Weights: the stored [K | S] is Q(W) of the reordered columns with its first S once more, codes and scales.
    InputTransform plain = input;
    plain.info.width = channels;
    plain.info.residual = 0;
    plain.columns.resize(absmax.size());
    const Array<float> wide = transform_weight(view(w, outputs), input, pool),
                       narrow = transform_weight(view(w, outputs), plain, pool);
    const QuantizedTensor stored = quantize(view(wide, outputs), spec, pool),
                          qw = quantize(view(narrow, outputs), spec, pool);
    ASSERT_EQ(stored.global_scale, qw.global_scale);
    for (std::int64_t n = 0; n < outputs; ++n) {
      const std::int64_t a = n * (channels + residual), b = n * channels;
      for (std::int64_t i = 0; i < (channels + residual) / 2; ++i)
        ASSERT_EQ(stored.codes[a / 2 + i], qw.codes[b / 2 + (i < channels / 2 ? i : i - channels / 2)]);
      for (std::int64_t i = 0; i < (channels + residual) / 16; ++i)
        ASSERT_EQ(stored.scales8[a / 16 + i],
                  qw.scales8[b / 16 + (i < channels / 16 ? i : i - channels / 16)]);
    }

    // Activations: Q(X), and Q(R) of the residual of the first S columns.
    std::vector<float> sorted, rest, both;
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t j = 0; j < channels; ++j)
        sorted.push_back(
            x[static_cast<std::size_t>(m * channels + input.columns[static_cast<std::size_t>(j)])]);
    const QuantizedTensor qx = quantize(view(sorted, rows), spec, pool);
    const Array<float> xq = dequantize(qx, pool);
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t j = 0; j < residual; ++j)
        rest.push_back(sorted[static_cast<std::size_t>(m * channels + j)] - xq[m * channels + j]);
    QuantizedTensor qr;
    Array<float> rq;
    if (residual) {
      qr = quantize(
          view(rest, rows), spec, pool,
          {.name = "residual", .global_scale = shared ? std::optional(qx.global_scale) : std::nullopt});
      rq = dequantize(qr, pool);
    }
    Array<float> augmented(rows * (channels + residual));
    augment({.rows = rows,
             .columns = channels,
             .x = sorted.data(),
             .residual = places.data(),
             .residual_count = residual,
             .spec = spec,
             .scope = ScaleScope::tensor,
             .shared_scale = shared,
             .out = augmented.data()},
            pool);
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t j = 0; j < channels + residual; ++j)
        ASSERT_EQ(augmented[m * (channels + residual) + j],
                  j < channels ? xq[m * channels + j] : rq[m * residual + j - channels]);

    // The products in integers: units of both global scales, of which the residuals' is a power of two times the input's.
    const int shift = residual ? std::ilogb(qr.global_scale) - std::ilogb(qx.global_scale) : 0;
    ASSERT_TRUE(residual == 0 || std::ldexp(qx.global_scale, shift) == qr.global_scale);
    ASSERT_LE(shift, 0);
    ASSERT_GE(shift, -48);
    const auto factor = Wide{1} << -shift;  // main terms in units of the residuals' scale
    const std::vector<std::int32_t> interleaved = interleaved_columns(channels, residual, 16);
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t n = 0; n < outputs; ++n) {
        const auto term = [&](std::int64_t j) {
          const Wide a = j < channels ? factor * units(qx, m, j) : Wide{units(qr, m, j - channels)};
          return a * units(stored, n, j);
        };
        Wide appended = 0, permuted = 0, main = 0, correction = 0;
        for (std::int64_t j = 0; j < channels + residual; ++j) appended += term(j);
        for (const std::int32_t j : interleaved) permuted += term(j);
        for (std::int64_t j = 0; j < channels; ++j) main += Wide{units(qx, m, j)} * units(qw, n, j);
        for (std::int64_t j = 0; j < residual; ++j) correction += Wide{units(qr, m, j)} * units(qw, n, j);
        ASSERT_TRUE(appended == factor * main + correction);
        ASSERT_TRUE(permuted == appended);
      }

    // The bound on every compensated channel. alpha: the stored scale over the ideal one, absmax / 6. One rounding errs by at
    // most f(alpha) of the block's absmax: half the widest step, 1 of 6, or what saturates. Where both scales are normal
    // E4M3 numbers alpha is 1 +- 1/16, so the error is at most alpha1 alpha2 M / 36, within alpha1 alpha2 M eps8, eps8 = 2^-4.
    const auto f = [](double alpha) { return std::max(alpha / 6, 1 - alpha); };
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t j = 0; j < residual; ++j) {
        const std::int64_t block = j / 16;
        double largest = 0, largest_rest = 0;
        for (std::int64_t i = 16 * block; i < 16 * block + 16; ++i) {
          largest = std::max(
              largest, static_cast<double>(std::abs(sorted[static_cast<std::size_t>(m * channels + i)])));
          largest_rest = std::max(
              largest_rest, static_cast<double>(std::abs(rest[static_cast<std::size_t>(m * residual + i)])));
        }
        const double error =
            std::abs(static_cast<double>(sorted[static_cast<std::size_t>(m * channels + j)]) -
                     static_cast<double>(xq[m * channels + j]) - static_cast<double>(rq[m * residual + j]));
        if (largest_rest == 0) {
          ASSERT_EQ(error, 0);
          continue;
        }
        const std::uint8_t code1 = qx.scales8[m * (channels / 16) + block],
                           code2 = qr.scales8[m * (residual / 16) + block];
        const double alpha1 = 6.0 * static_cast<double>(e4m3_decode(code1) * qx.global_scale) / largest;
        const double alpha2 = 6.0 * static_cast<double>(e4m3_decode(code2) * qr.global_scale) / largest_rest;
        ASSERT_LE(largest_rest, f(alpha1) * largest * (1 + 1e-6));
        ASSERT_LE(error, f(alpha2) * largest_rest * (1 + 1e-6) + 1e-7 * largest);
        ++compensated;
        if (code1 < 8 || code2 < 8) continue;  // a subnormal scale
        ++guaranteed;
        ASSERT_LE(alpha1 * alpha2, 1.266);
        ASSERT_LE(error, alpha1 * alpha2 * largest / 16);
        ASSERT_LE(error, 2 * largest / 16);  // and so below the bound of MXFP8
      }
  }
  EXPECT_GT(compensated, 2000);
  EXPECT_GT(guaranteed, compensated / 4);
  RecordProperty("compensated", static_cast<int>(compensated));
  RecordProperty("both_scales_normal", static_cast<int>(guaranteed));
}

INSTANTIATE_TEST_SUITE_P(Inputs, ArcIdentity,
                         testing::Values(Shape2::normal, Shape2::heavy, Shape2::adversarial));

const std::filesystem::path kModel = std::filesystem::path(HALFBYTE_GOLDEN) / "models" / "smollm2_like";

constexpr std::array<std::pair<const char*, const char*>, 7> kParts{{{"self_attn.q_proj", "attention"},
                                                                     {"self_attn.k_proj", "attention"},
                                                                     {"self_attn.v_proj", "attention"},
                                                                     {"self_attn.o_proj", "attention_output"},
                                                                     {"mlp.gate_proj", "mlp"},
                                                                     {"mlp.up_proj", "mlp"},
                                                                     {"mlp.down_proj", "mlp_product"}}};

struct Planned {
  Checkpoint checkpoint{kModel};
  QuantizePlan plan;
  std::vector<LinearSource> sources;
  CalibrationStats stats;

  explicit Planned(const QuantSpec& spec, bool activations = true) {
    std::vector<std::string> names;
    for (int i = 0; i < 3; ++i)
      for (const auto& [part, input] : kParts) {
        const std::string layer = "model.layers." + std::to_string(i) + ".";
        if (!checkpoint.has(layer + part + ".weight")) continue;
        names.push_back(layer + part);
        sources.push_back({layer + part, layer + input});
      }
    PlanOptions options{.weights = spec, .activations = {}, .keep = {"lm_head", "layers.0.self_attn.k_proj"}};
    if (activations) options.activations = ActivationSpec{.spec = spec};
    plan = make_plan(checkpoint, names, options);
    std::mt19937 random(5);
    for (const LinearSource& source : sources) {
      InputStats& input = stats.inputs[source.input];
      input.absmax.resize(static_cast<std::size_t>(checkpoint.shape(source.name + ".weight")[1]));
      for (float& a : input.absmax) a = std::exp2(static_cast<float>(random() % 5));  // many ties
    }
  }
};

TEST(PlanArc, SharesOrderAndCountAmongLinearsOfOneInput) {
  for (const auto order : {ColumnOrder::falling, ColumnOrder::natural}) {
    Planned p({.format = Format::nvfp4});
    plan_arc(p.checkpoint, p.plan, p.sources, p.stats,
             {.order = order, .rule = {Kind::percent, 20}, .cap_percent = 50});
    std::map<std::string, std::string> input_of;
    for (const PlannedTensor& tensor : p.plan.tensors) input_of[tensor.name] = tensor.input;
    EXPECT_EQ(input_of["model.layers.0.self_attn.q_proj.weight"], "model.layers.0.attention");
    EXPECT_EQ(input_of["model.layers.0.self_attn.v_proj.weight"], "model.layers.0.attention");
    EXPECT_EQ(input_of["model.layers.0.self_attn.k_proj.weight"], "");  // kept
    EXPECT_EQ(input_of["model.layers.0.mlp.gate_proj.weight"], input_of["model.layers.0.mlp.up_proj.weight"]);
    ASSERT_FALSE(p.plan.inputs.empty());
    for (const PlannedInput& input : p.plan.inputs) {
      const auto& absmax = p.stats.inputs.at(input.name).absmax;
      const InputInfo& info = input.transform.info;
      const auto& columns = input.transform.columns;
      EXPECT_EQ(info.residual % 16, 0);
      EXPECT_GT(info.residual, 0);
      EXPECT_EQ((info.width - info.residual) % 16, 0);
      const auto main = static_cast<std::size_t>(info.width - info.residual);
      const auto larger = [&](std::int32_t a, std::int32_t b) {  // a comes before b
        const float x = absmax[static_cast<std::size_t>(a)], y = absmax[static_cast<std::size_t>(b)];
        return x > y || (x == y && a < b);
      };
      for (std::size_t j = main + 1; j < columns.size(); ++j) EXPECT_TRUE(larger(columns[j - 1], columns[j]));
      for (std::size_t j = 1; j < absmax.size(); ++j)
        EXPECT_TRUE(order == ColumnOrder::natural ? columns[j] == static_cast<std::int32_t>(j)
                                                  : larger(columns[j - 1], columns[j]));
      if (order == ColumnOrder::falling) {
        EXPECT_TRUE(
            std::equal(columns.begin() + static_cast<std::ptrdiff_t>(main), columns.end(), columns.begin()));
      }
    }
  }
}

TEST(PlanArc, RefusesWhatMakesNoSense) {
  const ArcOptions options;
  Planned weights_only({.format = Format::nvfp4}, false);
  EXPECT_THROW(
      plan_arc(weights_only.checkpoint, weights_only.plan, weights_only.sources, weights_only.stats, options),
      Error);
  Planned rows({.format = Format::int8});
  EXPECT_THROW(plan_arc(rows.checkpoint, rows.plan, rows.sources, rows.stats, options), Error);
  Planned missing({.format = Format::nvfp4});
  missing.stats.inputs.erase(missing.stats.inputs.begin());
  EXPECT_THROW(plan_arc(missing.checkpoint, missing.plan, missing.sources, missing.stats, options), Error);
  Planned other({.format = Format::nvfp4});
  other.stats.inputs.begin()->second.absmax.push_back(1);
  EXPECT_THROW(plan_arc(other.checkpoint, other.plan, other.sources, other.stats, options), Error);
}

}  // namespace
}  // namespace halfbyte
