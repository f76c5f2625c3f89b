// Error feedback through a tiny model: what is stored must be what the finished checkpoint's own inputs lead to.
#include "layerwise/sequential_rounder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "calibrate/calibrate.h"
#include "calibrate/moments.h"
#include "core/fail.h"
#include "formats/source_dtype.h"
#include "io/file.h"
#include "layerwise/residual_statistics.h"
#include "model/engine_input.h"
#include "quantize/residual_budget.h"
#include "quantize/search_rounder.h"
#include "quantize/smoothquant.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

const std::filesystem::path kModels = std::filesystem::path(HALFBYTE_GOLDEN) / "models";
constexpr QuantSpec kNvfp4{.format = Format::nvfp4};
constexpr std::int64_t kSamples = 3, kLength = 40;

// Text of a kind: windows of ids without much order.
SampleSet some_samples() {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < kSamples * kLength; ++i) ids.push_back(1 + (i * i * 7 + i * 3) % 97);
  return {{ids}, {.samples = kSamples, .seq_len = kLength, .seed = 1}};
}

class SequentialRounderTest : public testing::TestWithParam<const char*> {
 protected:
  SequentialRounderTest()
      : pool_(2), dir_(kModels / GetParam()), checkpoint_(dir_), samples_(some_samples()) {
    config_ = parse_model_config(checkpoint_.config(), checkpoint_.config_file());
    for (const LinearInfo& linear : list_linears(config_)) {
      names_.push_back(linear.name);
      sources_.push_back({linear.name, input_name(linear.input, linear.layer)});
    }
    for (InputProducer& producer : list_producers(config_))
      producers_.emplace(producer.input, Producer{std::move(producer.tensor), std::move(producer.rows)});
  }

  QuantizePlan make(std::optional<QuantSpec> activations, std::vector<std::string> keep = {"lm_head"}) {
    PlanOptions options{.weights = kNvfp4, .activations = {}, .keep = std::move(keep)};
    if (activations) options.activations = ActivationSpec{.spec = *activations};
    QuantizePlan plan = make_plan(checkpoint_, names_, options);
    plan.rounding = Rounding::feedback;
    plan.feedback = {.samples = kSamples, .seq_len = kLength};
    return plan;
  }

  // Smoothing, folded where possible, and residual channels.
  QuantizePlan best(bool folded) {
    QuantizePlan plan = make(QuantSpec{.format = Format::nvfp4, .scale_search = true});
    Model model = Model::load(dir_, pool_);
    const CalibrationStats stats =
        calibrate(model, samples_, {.samples = kSamples, .seq_len = kLength}, pool_).stats;
    plan_smoothquant(checkpoint_, plan, sources_, stats, {.by = SmoothStatistic::rms}, pool_,
                     folded ? producers_ : Producers{});
    const auto residuals = residual_statistics(model, checkpoint_, plan, sources_, samples_, 60, pool_);
    plan_residual_budget(checkpoint_, plan, sources_, residuals, 15, pool_);
    share_weight_scales(checkpoint_, plan, sources_);
    return plan;
  }

  void write(const QuantizePlan& plan, const std::filesystem::path& out, ThreadPool& pool,
             WriteOptions options = {}, Arithmetic arithmetic = Arithmetic::bf16) {
    SequentialRounder rounder(checkpoint_, config_, plan, producers_, samples_, pool, arithmetic);
    options.rounder = &rounder;
    write_quantized(checkpoint_, plan, out, pool, options, producers_);
  }

  // Runs the finished checkpoint over the same text and rounds every weight again by what its inputs are there.
  void check_against_own_inputs(const QuantizePlan& plan) {
    const test::Scratch out;
    write(plan, out.path(), pool_, {}, Arithmetic::f32);  // as the finished model computes
    const Checkpoint written(out.path());
    const auto folded = folded_scales(checkpoint_, plan, producers_);
    Model model = Model::load(out.path(), pool_);
    std::map<std::string, std::vector<double>> moments;
    Array<float> changed, rounded;
    model.observe_inputs(
        [&](LinearInput place, std::int64_t layer, const float* x, std::int64_t rows, std::int64_t columns) {
          const std::string name = input_name(place, layer);
          const auto& inputs = written.quantization().inputs;
          InputTransform transform = inputs.contains(name) ? written.input(name) : unchanged_input(columns);
          const std::vector<std::int32_t> residual =
              transform.info.residual ? residual_positions(transform) : std::vector<std::int32_t>{};
          const float* seen = change_input(x, rows, transform, changed, pool_);
          if (plan.activations)
            seen = round_input(seen, rows, transform.info, residual, *plan.activations, rounded, pool_);
          const std::int64_t width = transform.info.width;
          std::vector<float> part(static_cast<std::size_t>(width * width));
          second_moment(seen, rows, width, part.data(), pool_);
          std::vector<double>& total = moments[name];
          total.resize(part.size());
          for (std::size_t i = 0; i < part.size(); ++i) total[i] += static_cast<double>(part[i]);
        });
    KvCache cache(model.config(), kLength);
    Array<float> hidden(kLength * model.config().hidden);
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      cache.clear();
      model.forward(samples_[i], cache, hidden.data(), pool_);
    }
    int checked = 0;
    for (const LinearSource& source : sources_) {
      const std::string name = source.name + ".weight";
      if (!written.is_quantized(name)) continue;
      const QuantizedTensor found = written.quantized(name);
      InputTransform transform = unchanged_input(checkpoint_.shape(name)[1]);
      for (const PlannedInput& input : plan.inputs)
        if (input.name == source.input) transform = input.transform;
      const auto divisors = folded.find(name);
      const Array<float> w =
          transform_weight(*checkpoint_.plain(name), transform, pool_,
                           divisors == folded.end() ? std::span<const float>{} : divisors->second);
      std::vector<float> moment;
      for (const double value : moments.at(source.input))
        moment.push_back(static_cast<float>(value / (static_cast<double>(samples_.size()) * kLength)));
      const std::int64_t residual = transform.info.residual;
      const ErrorFeedback feedback(moment, transform.info.width - residual, residual, {}, pool_);
      const QuantizedTensor again = feedback.quantize({w.data(), static_cast<std::size_t>(w.size())},
                                                      found.spec, found.global_scale, pool_);
      ASSERT_TRUE(std::ranges::equal(found.codes, again.codes)) << name;
      ASSERT_TRUE(std::ranges::equal(found.scales8, again.scales8)) << name;
      ++checked;
    }
    EXPECT_GE(checked, 8);
  }

  // Mean squared difference of the final hidden states from the original model's.
  double error(const std::filesystem::path& quantized) {
    Model model = Model::load(quantized, pool_), original = Model::load(dir_, pool_);
    KvCache cache(config_, kLength), other(config_, kLength);
    Array<float> a(kLength * config_.hidden), b(kLength * config_.hidden);
    double sum = 0;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      cache.clear();
      other.clear();
      model.forward(samples_[i], cache, a.data(), pool_);
      original.forward(samples_[i], other, b.data(), pool_);
      for (std::int64_t j = 0; j < a.size(); ++j) sum += std::pow(static_cast<double>(a[j] - b[j]), 2);
    }
    return sum;
  }

  ThreadPool pool_;
  std::filesystem::path dir_;
  Checkpoint checkpoint_;
  ModelConfig config_;
  SampleSet samples_;
  std::vector<std::string> names_;
  std::vector<LinearSource> sources_;
  Producers producers_;
};

TEST_P(SequentialRounderTest, StoresWhatTheFinishedModelsInputsLeadTo) {
  check_against_own_inputs(make({}));
  check_against_own_inputs(make(kNvfp4));
}

TEST_P(SequentialRounderTest, WithScalesFoldedAndResidualChannels) {
  for (const bool folded : {false, true}) {
    const QuantizePlan plan = best(folded);
    EXPECT_TRUE(std::ranges::any_of(
        plan.inputs, [](const PlannedInput& input) { return input.transform.info.residual > 0; }));
    check_against_own_inputs(plan);
  }
}

TEST_P(SequentialRounderTest, KeptLinearsRunAsTheyAre) {
  check_against_own_inputs(make(kNvfp4, {"lm_head", "layers.0.self_attn.v_proj", "layers.1.mlp", "o_proj"}));
}

TEST_P(SequentialRounderTest, SameBytesOnAnyNumberOfThreadsAndAfterAnInterruption) {
  QuantizePlan plan = best(true);
  plan.feedback.match_output = 0.5;
  const test::Scratch scratch;
  const auto at = [&](const char* name) {
    std::filesystem::create_directory(scratch.path() / name);
    return scratch.path() / name;
  };
  write(plan, at("a"), pool_);
  ThreadPool one(1);
  write(plan, at("b"), one);
  const std::string expected = read_text_file(scratch.path() / "a" / "model.safetensors");
  EXPECT_EQ(read_text_file(scratch.path() / "b" / "model.safetensors"), expected);

  const RunRecord record{
      .tool = "test", .model = "m", .stats = "", .plan = "p", .calibration_texts = {}, .options = {}};
  at("c");
  for (const std::int64_t stop : {3, 9, 1000}) {
    WriteOptions options{.record = &record, .resumable = true};
    options.progress = [&](std::int64_t done, const std::string&) {
      if (done == stop) throw std::runtime_error("stopped");
    };
    if (stop < 1000)
      EXPECT_THROW(write(plan, scratch.path() / "c", pool_, options), std::runtime_error);
    else
      write(plan, scratch.path() / "c", pool_, options);
  }
  EXPECT_EQ(read_text_file(scratch.path() / "c" / "model.safetensors"), expected);
}

TEST_P(SequentialRounderTest, EachStepComesCloserToTheOriginal) {
  const auto error_of = [&](QuantizePlan plan, Rounding rounding, double match) {
    const test::Scratch out;
    plan.rounding = rounding;
    plan.feedback.match_output = match;
    if (rounding == Rounding::feedback)
      write(plan, out.path(), pool_);
    else
      write_quantized(checkpoint_, plan, out.path(), pool_, {}, producers_);
    return error(out.path());
  };
  const double nearest = error_of(make({}), Rounding::nearest, 0),
               feedback = error_of(make({}), Rounding::feedback, 0),
               matched = error_of(make({}), Rounding::feedback, 1);
  EXPECT_LT(feedback, 0.8 * nearest);
  EXPECT_LT(matched, feedback);
}

TEST_P(SequentialRounderTest, SmoothingByRootMeanSquares) {
  QuantizePlan plan = make(kNvfp4);
  Model model = Model::load(dir_, pool_);
  const CalibrationStats stats =
      calibrate(model, samples_, {.samples = kSamples, .seq_len = kLength}, pool_).stats;
  plan_smoothquant(checkpoint_, plan, sources_, stats, {.alpha = 0.4, .by = SmoothStatistic::rms}, pool_);
  const auto input = std::ranges::find(plan.inputs, "model.layers.1.mlp", &PlannedInput::name);
  ASSERT_NE(input, plan.inputs.end());
  const std::int64_t channels = input->transform.info.channels;
  std::vector<double> factors;
  double logs = 0;
  for (std::int64_t k = 0; k < channels; ++k) {
    double sum = 0;
    std::int64_t rows = 0;
    for (const char* part : {"gate_proj", "up_proj"}) {
      const TensorView& w = *checkpoint_.plain(std::string("model.layers.1.mlp.") + part + ".weight");
      for (std::int64_t n = 0; n < w.shape[0]; ++n, ++rows)
        sum += std::pow(static_cast<double>(load_element(w.dtype, w.data.data(), n * channels + k)), 2);
    }
    const double x = std::sqrt(static_cast<double>(
                     stats.inputs.at(input->name).mean_square[static_cast<std::size_t>(k)])),
                 w = std::sqrt(sum / static_cast<double>(rows));
    factors.push_back(std::pow(std::max(x, 1e-5), 0.4) / std::pow(std::max(w, 1e-5), 0.6));
    logs += std::log(factors.back());
  }
  const double mean = std::exp(logs / static_cast<double>(channels));
  for (std::size_t k = 0; k < factors.size(); ++k)
    EXPECT_NEAR(static_cast<double>(input->transform.scale[k]), factors[k] / mean, 1e-4 * factors[k] / mean);
}

TEST_P(SequentialRounderTest, RefusesWhatItDoesNotCover) {
  if (checkpoint_.has("lm_head.weight")) {
    const QuantizePlan head = make({}, {});
    EXPECT_THROW(SequentialRounder(checkpoint_, config_, head, producers_, samples_, pool_), Error);
  }
  const QuantizePlan plan = make({});
  const SampleSet foreign({{std::vector<std::int32_t>{1, 2, 3, 1 << 20}}}, {.samples = 1, .seq_len = 4});
  EXPECT_THROW(SequentialRounder(checkpoint_, config_, plan, producers_, foreign, pool_), Error);
}

INSTANTIATE_TEST_SUITE_P(Models, SequentialRounderTest, testing::Values("smollm2_like", "qwen2", "qwen3"));

}  // namespace
}  // namespace halfbyte
