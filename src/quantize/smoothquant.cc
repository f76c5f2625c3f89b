#include "quantize/smoothquant.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "formats/source_dtype.h"
#include "quantize/methods.h"

namespace halfbyte {

namespace {

// What all weights that read an input say of its columns: the largest |w[n, k]|, or the root of the mean of w[n, k]^2.
std::vector<float> column_magnitudes(const Checkpoint& checkpoint, const InputGroup& group,
                                     SmoothStatistic by, ThreadPool& pool) {
  constexpr std::int64_t kColumns = 64;
  std::vector<double> totals(static_cast<std::size_t>(group.channels));
  std::int64_t all_rows = 0;
  for (const PlannedTensor* tensor : group.tensors) {
    const TensorView& weight = *checkpoint.plain(tensor->name);
    const std::int64_t rows = weight.shape[0], columns = weight.shape[1];
    pool.parallel_for(ceil_div(columns, kColumns), [&](std::int64_t item) {
      for (std::int64_t n = 0; n < rows; ++n)
        for (std::int64_t k = item * kColumns; k < std::min(columns, (item + 1) * kColumns); ++k) {
          double& total = totals[static_cast<std::size_t>(k)];
          const auto value =
              static_cast<double>(load_element(weight.dtype, weight.data.data(), n * columns + k));
          total = by == SmoothStatistic::rms ? total + value * value : std::max(total, std::abs(value));
        }
    });
    all_rows += rows;
    checkpoint.drop(tensor->name);
  }
  std::vector<float> magnitudes;
  for (const double total : totals)
    magnitudes.push_back(static_cast<float>(
        by == SmoothStatistic::rms ? std::sqrt(total / static_cast<double>(all_rows)) : total));
  return magnitudes;
}

// The producer that takes an input's scale in, or null where that cannot be.
const Producer* folding_producer(const Checkpoint& checkpoint, const QuantizePlan& plan,
                                 const InputGroup& group, const Producers& producers) {
  const auto found = producers.find(group.input);
  if (found == producers.end() || !group.all) return nullptr;
  const Producer& producer = found->second;
  const auto tensor = std::ranges::find(plan.tensors, producer.tensor, &PlannedTensor::name);
  if (tensor == plan.tensors.end()) return nullptr;
  if (tensor->spec) {
    const std::string linear = producer.tensor.substr(0, producer.tensor.rfind('.'));
    return checkpoint.has(linear + ".bias") ? nullptr : &producer;
  }
  return checkpoint.shape(producer.tensor).size() == 1 ? &producer : nullptr;
}

// values[k] = that of all channels which come from the same row as k together.
void pool_rows(std::vector<float>& values, const std::vector<std::int32_t>& rows, SmoothStatistic by) {
  std::vector<double> totals(values.size()), counts(values.size());
  for (std::size_t k = 0; k < values.size(); ++k) {
    const auto row = static_cast<std::size_t>(rows[k]);
    const auto value = static_cast<double>(values[k]);
    totals[row] = by == SmoothStatistic::rms ? totals[row] + value * value : std::max(totals[row], value);
    ++counts[row];
  }
  for (std::size_t k = 0; k < values.size(); ++k) {
    const auto row = static_cast<std::size_t>(rows[k]);
    values[k] =
        static_cast<float>(by == SmoothStatistic::rms ? std::sqrt(totals[row] / counts[row]) : totals[row]);
  }
}

// The scale that the gain's new value stands for.
float scale_of_gain(DType dtype, float gain, float scale) {
  const float rounded = round_to_dtype(dtype, gain / scale);
  if (gain == 0.0f) return scale;  // the channel is always zero
  const float effective = gain / rounded;
  return rounded != 0.0f && std::isfinite(rounded) && std::isfinite(effective) ? effective : 1.0f;
}

}  // namespace

void plan_smoothquant(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
                      const CalibrationStats& stats, const SmoothOptions& options, ThreadPool& pool,
                      const Producers& producers) {
  if (!(options.alpha >= 0 && options.alpha <= 1))
    fail_input("--alpha is {}, expected 0 to 1", options.alpha);
  if (!plan.activations && options.by == SmoothStatistic::absmax)
    fail_input(
        "--method smoothquant makes activations easier to round: give --activations same or a format, or for "
        "weights alone --smooth-by rms");
  plan.method = "smoothquant";
  for (const InputGroup& group : group_by_input(checkpoint, plan, linears)) {
    const InputStats& input = stats_of(stats, group);
    std::vector<float> inputs = input.absmax,
                       weights = column_magnitudes(checkpoint, group, options.by, pool);
    if (options.by == SmoothStatistic::rms)
      for (std::size_t k = 0; k < inputs.size(); ++k) inputs[k] = std::sqrt(input.mean_square[k]);
    const Producer* producer = folding_producer(checkpoint, plan, group, producers);
    const TensorView* gains = nullptr;
    if (producer) {
      pool_rows(inputs, producer->rows, options.by);
      pool_rows(weights, producer->rows, options.by);
      if (checkpoint.shape(producer->tensor).size() == 1) gains = checkpoint.plain(producer->tensor);
    }
    PlannedInput planned{.name = {},
                         .transform = {.info = {.method = "smoothquant",
                                                .channels = group.channels,
                                                .width = group.channels,
                                                .scaled = true},
                                       .scale = {},
                                       .columns = {}},
                         .folded_into = producer ? producer->tensor : ""};
    std::vector<double> factors;
    double logs = 0;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const double x = std::max(static_cast<double>(inputs[k]), 1e-5),
                   w = std::max(static_cast<double>(weights[k]), 1e-5);
      factors.push_back(std::pow(x, options.alpha) / std::pow(w, 1 - options.alpha));
      logs += std::log(factors.back());
    }
    const double mean =
        options.by == SmoothStatistic::rms ? std::exp(logs / static_cast<double>(factors.size())) : 1.0;
    for (std::size_t k = 0; k < factors.size(); ++k) {
      auto scale = static_cast<float>(factors[k] / mean);
      if (!(scale > 0) || std::isinf(scale))
        fail_input("{}: channel {} of {} gets the factor {}; a weight there is NaN or infinite",
                   checkpoint.files().path(), k, group.input, scale);
      if (gains)
        scale = scale_of_gain(gains->dtype,
                              load_element(gains->dtype, gains->data.data(), static_cast<std::int64_t>(k)),
                              scale);
      planned.transform.scale.push_back(scale);
    }
    add_input(plan, group, std::move(planned));
  }
}

}  // namespace halfbyte
