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

}  // namespace

void plan_smoothquant(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
                      const CalibrationStats& stats, double alpha, ThreadPool& pool) {
  if (!(alpha >= 0 && alpha <= 1)) fail_input("--alpha is {}, expected 0 to 1", alpha);
  if (!plan.activations)
    fail_input("--method smoothquant makes activations easier to round: give --activations same or a format");
  for (const InputGroup& group : group_by_input(checkpoint, plan, linears)) {
    const InputStats& input = stats_of(stats, group);
    std::vector<float> weights(input.absmax.size());
    for (const PlannedTensor* tensor : group.tensors) {
      take_column_absmax(*checkpoint.plain(tensor->name), weights, pool);
      checkpoint.drop(tensor->name);
    }
    InputTransform transform;
    transform.info = {
        .method = "smoothquant", .channels = group.channels, .width = group.channels, .scaled = true};
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const double x = std::max(static_cast<double>(input.absmax[k]), 1e-5),
                   w = std::max(static_cast<double>(weights[k]), 1e-5);
      const auto scale = static_cast<float>(std::pow(x, alpha) / std::pow(w, 1 - alpha));
      if (!(scale > 0) || std::isinf(scale))
        fail_input("{}: channel {} of {} gets the factor {}; a weight there is NaN or infinite",
                   checkpoint.files().path(), k, group.input, scale);
      transform.scale.push_back(scale);
    }
    add_input(plan, group, std::move(transform));
  }
}

}  // namespace halfbyte
