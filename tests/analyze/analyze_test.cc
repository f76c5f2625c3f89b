// Analysis of tiny models: errors, histograms, drift and bounds against plain loops over the scalar codec; refusals.
#include "analyze/analyze.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analyze/analysis_file.h"
#include "analyze/bound.h"
#include "analyze/input_probe.h"
#include "calibrate/calibrate.h"
#include "quantize/write.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const std::filesystem::path kModels = std::filesystem::path(HALFBYTE_GOLDEN) / "models";

// Ids below the vocabulary of 163 that all tiny models have.
std::vector<std::int32_t> some_ids(std::size_t count, std::size_t salt) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i)
    ids[i] = static_cast<std::int32_t>(1 + (i * i * 7 + i * 3 + salt) % 97);
  return ids;
}

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;
  float& at(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * columns + c)]; }
  float at(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * columns + c)]; }
};

float absmax_of(const Matrix& m) {
  float largest = 0;
  for (const float v : m.values) largest = std::max(largest, std::abs(v));
  return largest;
}

// NVFP4 there and back by the scalar codec, rule pow2.
Matrix rounded(const Matrix& m, float amax) {
  constexpr auto kRule = GlobalScaleRule::pow2;
  const float global = nvfp4_global_scale(kRule, amax, DType::f32);
  Matrix out = m;
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t first = 0; first < m.columns; first += 16) {
      const std::int64_t last = std::min(m.columns, first + 16);
      float absmax = 0;
      for (std::int64_t c = first; c < last; ++c) absmax = std::max(absmax, std::abs(m.at(r, c)));
      const float step = nvfp4_step(kRule, nvfp4_encode_scale(kRule, absmax, global, DType::f32), global);
      for (std::int64_t c = first; c < last; ++c)
        out.at(r, c) = nvfp4_decode(nvfp4_encode(kRule, m.at(r, c), step), step);
    }
  return out;
}

// Columns of m by number; -1 is a column of zeros.
Matrix gathered(const Matrix& m, const std::vector<std::int64_t>& columns) {
  Matrix out{m.rows, static_cast<std::int64_t>(columns.size()), {}};
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (const std::int64_t c : columns) out.values.push_back(c < 0 ? 0.0f : m.at(r, c));
  return out;
}

double product(const Matrix& x, const Matrix& w, std::int64_t r, std::int64_t n) {
  double sum = 0;
  for (std::int64_t k = 0; k < x.columns; ++k)
    sum += static_cast<double>(x.at(r, k)) * static_cast<double>(w.at(n, k));
  return sum;
}

class AnalyzeTest : public testing::Test {
 protected:
  explicit AnalyzeTest(const std::string& name = "smollm2_like")
      : dir_(kModels / name), checkpoint_(dir_), pool_(2), model_(Model::load(dir_, pool_)) {
    for (std::size_t i = 0; i < 2; ++i) texts_.push_back(some_ids(40, i));
    for (const auto& text : texts_) windows_.emplace_back(text);
    stats_ = calibrated(texts_);
    options_.spec = {.format = Format::nvfp4};
    options_.methods = {"rtn", "arc", "smoothquant", "hadamard"};
    options_.formats = {{.format = Format::nvfp4},
                        {.format = Format::mxfp8_e4m3},
                        {.format = Format::nf4},
                        {.format = Format::bf16}};
    options_.keep = {"lm_head"};
    options_.arc.cap_percent = 50;
  }

  CalibrationStats calibrated(const std::vector<std::vector<std::int32_t>>& texts) {
    const SampleOptions options{.samples = 8, .seq_len = 40, .seed = 0};
    return calibrate(model_, SampleSet(texts, options), options, pool_).stats;
  }

  Analysis run(int threads = 2) {
    ThreadPool pool(threads);
    return analyze(model_, checkpoint_, stats_, windows_, options_, pool);
  }

  // What goes into that input in each window.
  std::vector<Matrix> inputs(const std::string& name) {
    std::vector<Matrix> found;
    model_.observe_inputs(
        [&](LinearInput input, std::int64_t layer, const float* x, std::int64_t rows, std::int64_t columns) {
          if (input_name(input, layer) == name)
            found.push_back({rows, columns, std::vector<float>(x, x + rows * columns)});
        });
    KvCache cache(model_.config(), 40);
    Array<float> hidden(40 * model_.config().hidden);
    for (const auto& window : windows_) {
      cache.clear();
      model_.forward(window, cache, hidden.data(), pool_);
    }
    model_.observe_inputs({});
    return found;
  }

  Matrix weight(const std::string& linear) {
    const TensorView& view = *checkpoint_.plain(linear + ".weight");
    Matrix m{view.shape[0], view.shape[1], {}};
    for (std::int64_t i = 0; i < m.rows * m.columns; ++i)
      m.values.push_back(load_element(view.dtype, view.data.data(), i));
    return m;
  }

  const InputAnalysis& input(const Analysis& analysis, const std::string& name) {
    return *std::ranges::find(analysis.inputs, name, &InputAnalysis::name);
  }
  const LinearAnalysis& linear(const Analysis& analysis, const std::string& name) {
    return *std::ranges::find(analysis.linears, name, &LinearAnalysis::name);
  }

  std::filesystem::path dir_;
  Checkpoint checkpoint_;
  ThreadPool pool_;
  Model model_;
  std::vector<std::vector<std::int32_t>> texts_;
  std::vector<std::span<const std::int32_t>> windows_;
  CalibrationStats stats_;
  AnalyzeOptions options_;
};

TEST_F(AnalyzeTest, CoversEveryLinearInTheOrderTheyRun) {
  const Analysis analysis = run();
  EXPECT_EQ(analysis.inputs.size(), 12u);
  EXPECT_EQ(analysis.linears.size(), 21u);
  EXPECT_EQ(analysis.linears[6].name, "model.layers.0.mlp.down_proj");
  EXPECT_EQ(analysis.tokens, 80);
  EXPECT_EQ(analysis.windows, 2);
  EXPECT_EQ(analysis.formats, (std::vector<std::string>{"nvfp4", "mxfp8_e4m3", "nf4", "bf16"}));
  for (const LinearAnalysis& l : analysis.linears) {
    EXPECT_EQ(l.methods.size(), 4u);
    for (const auto& [name, error] : l.methods) {
      EXPECT_GT(error.both, 0) << l.name << " " << name;
      EXPECT_GT(error.both, 0.5 * error.weights) << l.name << " " << name;
    }
    EXPECT_EQ(l.methods.at("rtn").both, l.formats.at("nvfp4").error.both);
    EXPECT_EQ(l.formats.at("bf16").error.both, 0);
    EXPECT_EQ(l.formats.at("bf16").bits, 16);
    EXPECT_LT(l.formats.at("mxfp8_e4m3").error.both, l.formats.at("nvfp4").error.both);
    EXPECT_EQ(l.formats.at("nf4").error.both, l.formats.at("nf4").error.weights);  // of weights only
    EXPECT_EQ(l.formats.at("nvfp4").bits, bits_per_weight({.format = Format::nvfp4}, {l.out, l.in}));
  }
  options_.keep = {"layers.1", "lm_head"};
  EXPECT_EQ(run().linears.size(), 14u);
}

TEST_F(AnalyzeTest, OutputErrorsAreThoseOfPlainLoops) {
  const Analysis analysis = run();
  for (const auto& [input_of, linears] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"model.layers.0.mlp", {"model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"}},
           {"model.layers.2.mlp_product", {"model.layers.2.mlp.down_proj"}}}) {
    float amax = 0;  // weights that read one input share their global scale
    for (const std::string& name : linears) amax = std::max(amax, absmax_of(weight(name)));
    const std::vector<Matrix> xs = inputs(input_of);
    for (const std::string& name : linears) {
      const Matrix w = weight(name), wq = rounded(w, amax);
      double square = 0, both = 0, weights = 0;
      for (const Matrix& x : xs) {
        const Matrix xq = rounded(x, absmax_of(x));
        for (std::int64_t r = 0; r < x.rows; ++r)
          for (std::int64_t n = 0; n < w.rows; ++n) {
            const double y = product(x, w, r, n);
            square += y * y;
            both += std::pow(product(xq, wq, r, n) - y, 2);
            weights += std::pow(product(x, wq, r, n) - y, 2);
          }
      }
      const LinearAnalysis& found = linear(analysis, name);
      EXPECT_NEAR(found.output_square, square / 80, 1e-4 * square / 80) << name;
      EXPECT_NEAR(found.methods.at("rtn").both, both / square, 1e-3 * both / square) << name;
      EXPECT_NEAR(found.methods.at("rtn").weights, weights / square, 1e-3 * weights / square) << name;
    }
  }
}

TEST_F(AnalyzeTest, ResidualChannelsAreThoseOfPlainLoops) {
  const Analysis analysis = run();
  const std::string name = "model.layers.1.mlp.down_proj";
  const InputAnalysis& found = input(analysis, "model.layers.1.mlp_product");
  const std::vector<float>& absmax = stats_.inputs.at(found.name).absmax;
  const auto channels =
      static_cast<std::int64_t>(absmax.size());  // 104: the last block is filled up with zeros
  std::vector<std::int64_t> order(absmax.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](auto a, auto b) {
    return absmax[static_cast<std::size_t>(a)] > absmax[static_cast<std::size_t>(b)];
  });
  const float largest = *std::ranges::max_element(absmax);
  const auto above = std::ranges::count_if(absmax, [&](float a) { return a > largest / 8; });
  EXPECT_EQ(found.above_tau, static_cast<double>(above) / static_cast<double>(channels));
  const std::int64_t wanted = (above + 15) / 16 * 16, cap = channels / 2 / 16 * 16,
                     s = std::min<std::int64_t>(wanted, cap);
  EXPECT_EQ(found.residual, s);
  EXPECT_EQ(found.capped, wanted > cap);
  ASSERT_GT(s, 0);

  order.resize(112, -1);
  const Matrix w = weight(name), wg = gathered(w, order), wq = rounded(wg, absmax_of(w));
  double square = 0, both = 0;
  ErrorHistogram before{}, after{};
  for (const Matrix& x : inputs(found.name)) {
    const Matrix xg = gathered(x, order), xq = rounded(xg, absmax_of(xg));
    Matrix rest{x.rows, s, {}};
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t j = 0; j < s; ++j) rest.values.push_back(xg.at(r, j) - xq.at(r, j));
    const Matrix rq = rounded(rest, absmax_of(rest));
    const double unit = static_cast<double>(absmax_of(x));
    for (std::int64_t r = 0; r < x.rows; ++r) {
      for (std::int64_t n = 0; n < w.rows; ++n) {
        const double y = product(x, w, r, n);
        double yq = product(xq, wq, r, n);
        for (std::int64_t j = 0; j < s; ++j)
          yq += static_cast<double>(rq.at(r, j)) * static_cast<double>(wq.at(n, j));
        square += y * y;
        both += (yq - y) * (yq - y);
      }
      for (std::int64_t j = 0; j < channels; ++j) {
        const double one = static_cast<double>(xg.at(r, j)) - static_cast<double>(xq.at(r, j));
        const double two = j < s ? static_cast<double>(xg.at(r, j)) -
                                       (static_cast<double>(xq.at(r, j)) + static_cast<double>(rq.at(r, j)))
                                 : one;
        // log2 by comparison: bin i > 0 from 2^(i - 24) on.
        const auto bin = [&](double e) {
          std::size_t i = 0;
          while (i + 1 < kErrorBins && std::abs(e) / unit >= std::ldexp(1.0, static_cast<int>(i + 1) - 24))
            ++i;
          return i;
        };
        ++before[bin(one)];
        ++after[bin(two)];
      }
    }
  }
  EXPECT_NEAR(linear(analysis, name).methods.at("arc").both, both / square, 1e-3 * both / square);
  EXPECT_EQ(*found.before, before);
  EXPECT_EQ(*found.after, after);
  EXPECT_EQ(std::accumulate(after.begin(), after.end(), std::int64_t{0}), 80 * channels);
  EXPECT_EQ(std::accumulate(found.rtn->begin(), found.rtn->end(), std::int64_t{0}), 80 * channels);
  ASSERT_TRUE(found.bound);
  EXPECT_EQ(found.bound->values, 80 * s);
}

TEST_F(AnalyzeTest, TheBoundHoldsAndIsReallyChecked) {
  for (const ColumnOrder order : {ColumnOrder::falling, ColumnOrder::natural}) {
    options_.arc.order = order;
    const Analysis analysis = run();
    std::int64_t guaranteed = 0;
    for (const InputAnalysis& found : analysis.inputs) {
      if (!found.residual) continue;
      ASSERT_TRUE(found.bound);
      EXPECT_EQ(found.bound->violations, 0) << found.name;
      EXPECT_GT(found.bound->largest_share, 0);
      EXPECT_LE(found.bound->largest_share, 1);
      EXPECT_LE(found.bound->largest_alpha, 1.266);
      EXPECT_LE(found.bound->mxfp8_largest_share, 1 + 1e-6);
      guaranteed += found.bound->guaranteed;
    }
    EXPECT_GT(guaranteed, 1000);
  }

  // The same check on an input whose residuals were lost.
  InputTransform arc;
  arc.info = {.method = "arc", .channels = 16, .width = 32, .residual = 16, .gathered = true};
  for (int part = 0; part < 2; ++part)
    for (int k = 0; k < 16; ++k) arc.columns.push_back(k);
  std::vector<float> x;
  for (int k = 0; k < 16; ++k) x.push_back(4.9f + 0.1f * static_cast<float>(k));
  const QuantSpec spec{.format = Format::nvfp4};
  EngineInput input = make_engine_input(x.data(), 1, arc, spec, pool_);
  EXPECT_EQ(check_bound(x.data(), 16, arc, input, spec, pool_).violations, 0);
  for (int j = 16; j < 32; ++j) input.rounded[j] = 0;
  const BoundCheck broken = check_bound(x.data(), 16, arc, input, spec, pool_);
  EXPECT_GT(broken.violations, 0);
  EXPECT_GT(broken.largest_share, 1);
}

TEST_F(AnalyzeTest, DriftIsNoneOnTheCalibrationTextAndSeenElsewhere) {
  for (const InputAnalysis& found : run().inputs) {
    EXPECT_EQ(found.drift.absmax_ratio, 1) << found.name;
    EXPECT_EQ(found.drift.channels_above, 0);
    EXPECT_EQ(found.drift.top_overlap, 1);
    EXPECT_NEAR(found.drift.mean_square_ratio, 1, 1e-5);
    EXPECT_EQ(found.clipped, 0);
    EXPECT_LE(found.clipped_largest, 1);
  }
  // Statistics as of a quieter text.
  InputStats& quiet = stats_.inputs.at("model.layers.1.mlp");
  for (float& a : quiet.absmax) a /= 8;
  for (float& s : quiet.mean_square) s /= 64;
  quiet.global_absmax /= 8;
  const Analysis analysis = run();
  const InputAnalysis& found = input(analysis, "model.layers.1.mlp");
  EXPECT_NEAR(found.drift.absmax_ratio, 8, 1e-5);
  EXPECT_NEAR(found.drift.mean_square_ratio, 64, 1e-2);
  EXPECT_EQ(found.drift.channels_above, found.channels);
  const float range = nvfp4_range(GlobalScaleRule::pow2,
                                  nvfp4_global_scale(GlobalScaleRule::pow2, quiet.global_absmax, DType::f32));
  std::int64_t beyond = 0;
  for (const Matrix& x : inputs(found.name))
    beyond += std::ranges::count_if(x.values, [&](float v) { return std::abs(v) > range; });
  EXPECT_GT(beyond, 0);
  EXPECT_EQ(found.clipped, beyond);
}

TEST_F(AnalyzeTest, SameBytesForAnyNumberOfThreads) {
  EXPECT_EQ(to_json(run(1)).dump(), to_json(run(3)).dump());
}

TEST_F(AnalyzeTest, RefusesWhatDoesNotFit) {
  const auto message = [&] { return test::message_of([&] { run(); }); };
  AnalyzeOptions good = options_;
  options_.methods = {"magic"};
  EXPECT_NE(message().find("magic"), std::string::npos);
  options_ = good;
  options_.keep = {"nonsense"};
  EXPECT_NE(message().find("nonsense"), std::string::npos);
  options_ = good;
  options_.alpha = 2;
  EXPECT_NE(message().find("alpha"), std::string::npos);
  options_ = good;
  CalibrationStats whole = stats_;
  stats_.inputs.erase("model.layers.0.mlp");
  EXPECT_NE(message().find("model.layers.0.mlp"), std::string::npos);
  stats_ = whole;
  stats_.inputs.at("model.layers.0.mlp").absmax.pop_back();
  EXPECT_NE(message().find("another model"), std::string::npos);
}

TEST(Analyze, EveryTinyModel) {
  ThreadPool pool(2);
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    Model model = Model::load(entry.path(), pool);
    const std::vector<std::vector<std::int32_t>> texts{some_ids(24, 5)};
    const SampleOptions samples{.samples = 1, .seq_len = 24, .seed = 0};
    const CalibrationStats stats = calibrate(model, SampleSet(texts, samples), samples, pool).stats;
    AnalyzeOptions options;
    options.spec = {.format = Format::mxfp4};
    options.methods = {"rtn", "arc", "hadamard"};
    options.keep = {"lm_head"};
    options.arc.cap_percent = 60;
    const std::vector<std::span<const std::int32_t>> windows{texts[0]};
    const Analysis analysis = analyze(model, Checkpoint(entry.path()), stats, windows, options, pool);
    EXPECT_EQ(analysis.linears.size(), static_cast<std::size_t>(7 * model.config().layers));
    for (const LinearAnalysis& l : analysis.linears)
      for (const auto& [name, error] : l.methods) EXPECT_GT(error.both, 0) << l.name;
    for (const InputAnalysis& i : analysis.inputs)
      EXPECT_FALSE(i.bound || i.clipped) << i.name;  // of nvfp4 only
  }
}

TEST(Analyze, ErrorBins) {
  EXPECT_EQ(error_bin(0), 0);
  EXPECT_EQ(error_bin(std::ldexp(1.0, -30)), 0);
  EXPECT_EQ(error_bin(std::ldexp(1.0, -23)), 1);
  EXPECT_EQ(error_bin(std::nextafter(std::ldexp(1.0, -22), 0)), 1);
  EXPECT_EQ(error_bin(0.5), 23);
  EXPECT_EQ(error_bin(1), 24);
  EXPECT_EQ(error_bin(100), 24);
}

}  // namespace
}  // namespace halfbyte
