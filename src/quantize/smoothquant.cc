#include "quantize/smoothquant.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "formats/source_dtype.h"
#include "quantize/methods.h"

namespace halfbyte {

namespace {

// largest[k] = max with |w[n, k]| over all n.
void take_column_absmax(const TensorView& weight, std::vector<float>& largest, ThreadPool& pool) {
  constexpr std::int64_t kColumns = 64;
  const std::int64_t rows = weight.shape[0], columns = weight.shape[1];
  pool.parallel_for(ceil_div(columns, kColumns), [&](std::int64_t item) {
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t k = item * kColumns; k < std::min(columns, (item + 1) * kColumns); ++k) {
        float& entry = largest[static_cast<std::size_t>(k)];
        entry = std::max(entry, std::abs(load_element(weight.dtype, weight.data.data(), n * columns + k)));
      }
  });
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

// values[k] = the largest of all channels that come from the same row as k.
void pool_rows(std::vector<float>& values, const std::vector<std::int32_t>& rows) {
  std::vector<float> largest(values.size());
  for (std::size_t k = 0; k < values.size(); ++k) {
    float& row = largest[static_cast<std::size_t>(rows[k])];
    row = std::max(row, values[k]);
  }
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = largest[static_cast<std::size_t>(rows[k])];
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
                      const CalibrationStats& stats, double alpha, ThreadPool& pool,
                      const Producers& producers) {
  if (!(alpha >= 0 && alpha <= 1)) fail_input("--alpha is {}, expected 0 to 1", alpha);
  if (!plan.activations)
    fail_input("--method smoothquant makes activations easier to round: give --activations same or a format");
  plan.method = "smoothquant";
  for (const InputGroup& group : group_by_input(checkpoint, plan, linears)) {
    std::vector<float> inputs = stats_of(stats, group).absmax, weights(inputs.size());
    for (const PlannedTensor* tensor : group.tensors) {
      take_column_absmax(*checkpoint.plain(tensor->name), weights, pool);
      checkpoint.drop(tensor->name);
    }
    const Producer* producer = folding_producer(checkpoint, plan, group, producers);
    const TensorView* gains = nullptr;
    if (producer) {
      pool_rows(inputs, producer->rows);
      pool_rows(weights, producer->rows);
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
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const double x = std::max(static_cast<double>(inputs[k]), 1e-5),
                   w = std::max(static_cast<double>(weights[k]), 1e-5);
      auto scale = static_cast<float>(std::pow(x, alpha) / std::pow(w, 1 - alpha));
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
