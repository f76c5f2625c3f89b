#include "layerwise/residual_statistics.h"

#include <algorithm>

#include "core/fail.h"
#include "model/engine_input.h"
#include "ops/fake_quantize/op.h"
#include "ops/matmul_f32/op.h"
#include "quantize/write.h"

namespace halfbyte {

namespace {

struct Sums {
  std::vector<double> squares;            // [K] of residuals
  std::map<std::string, double> outputs;  // by weight
};

// Adds column sums of r^2, tokens in order.
void add_residuals(const float* x, const float* rounded, std::int64_t rows, std::int64_t columns, Sums& sums,
                   ThreadPool& pool) {
  constexpr std::int64_t kColumns = 64;
  sums.squares.resize(static_cast<std::size_t>(columns));
  pool.parallel_for(ceil_div(columns, kColumns), [&](std::int64_t item) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = item * kColumns; k < std::min(columns, (item + 1) * kColumns); ++k) {
        const auto lost = static_cast<double>(x[r * columns + k] - rounded[r * columns + k]);
        sums.squares[static_cast<std::size_t>(k)] += lost * lost;
      }
  });
}

}  // namespace

std::map<std::string, ResidualStatistics> residual_statistics(Model& model, const Checkpoint& checkpoint,
                                                              const QuantizePlan& plan,
                                                              std::span<const LinearSource> linears,
                                                              const SampleSet& samples, std::int64_t tokens,
                                                              ThreadPool& pool) {
  HB_DCHECK(plan.activations);
  std::map<std::string, std::vector<const PlannedTensor*>> readers;  // by input
  for (const LinearSource& linear : linears) {
    const auto tensor = std::ranges::find(plan.tensors, linear.name + ".weight", &PlannedTensor::name);
    if (tensor != plan.tensors.end() && tensor->spec) readers[linear.input].push_back(&*tensor);
  }
  std::map<std::string, Sums> sums;
  Array<float> buffer, rounded;
  std::int64_t seen = 0;
  model.observe_inputs([&](LinearInput place, std::int64_t layer, const float* x, std::int64_t rows,
                           std::int64_t columns) {
    const std::string name = input_name(place, layer);
    const auto found = readers.find(name);
    if (found == readers.end()) return;
    InputTransform transform = unchanged_input(columns);
    if (const PlannedInput* input = find_input(plan, name)) {
      transform.scale = input->transform.scale;
      transform.info.scaled = !transform.scale.empty();
    }
    const float* scaled = change_input(x, rows, transform, buffer, pool);
    if (rounded.size() < rows * columns) rounded = Array<float>(rows * columns);
    fake_quantize(
        {.rows = rows,
         .columns = columns,
         .x = scaled,
         .x_stride = columns,
         .out = rounded.data(),
         .out_stride = columns,
         .spec = plan.activations->spec,
         .scope = plan.activations->scope == ActivationScope::token ? ScaleScope::row : ScaleScope::tensor},
        pool);
    add_residuals(scaled, rounded.data(), rows, columns, sums[name], pool);
    for (const PlannedTensor* tensor : found->second) {
      InputTransform none = unchanged_input(columns);
      const Array<float> weight = transform_weight(*checkpoint.plain(tensor->name), none, pool);
      checkpoint.drop(tensor->name);
      const std::int64_t outputs = weight.size() / columns;
      Array<float> y(rows * outputs);
      matmul_f32({.m = rows,
                  .n = outputs,
                  .k = columns,
                  .activation = x,
                  .activation_stride = columns,
                  .weight = weight.data(),
                  .weight_stride = columns,
                  .out = y.data(),
                  .out_stride = outputs},
                 pool);
      double& total = sums[name].outputs[tensor->name];
      for (const float value : y) total += static_cast<double>(value) * static_cast<double>(value);
    }
  });
  const auto length = static_cast<std::int64_t>(samples[0].size());
  const std::int64_t used = std::min<std::int64_t>(static_cast<std::int64_t>(samples.size()), 16);
  const std::int64_t each = std::clamp<std::int64_t>(tokens / used, 1, length);
  KvCache cache(model.config(), each);
  Array<float> hidden(each * model.config().hidden);
  try {
    for (std::int64_t i = 0; i < used; ++i) {
      cache.clear();
      model.forward(samples[static_cast<std::size_t>(i)].first(static_cast<std::size_t>(each)), cache,
                    hidden.data(), pool);
      seen += each;
    }
  } catch (...) {
    model.observe_inputs({});
    throw;
  }
  model.observe_inputs({});
  std::map<std::string, ResidualStatistics> result;
  for (const auto& [name, sum] : sums) {
    ResidualStatistics& statistics = result[name];
    for (const double square : sum.squares)
      statistics.mean_square.push_back(static_cast<float>(square / static_cast<double>(seen)));
    for (const auto& [tensor, square] : sum.outputs)
      statistics.output_square[tensor] = square / static_cast<double>(seen);
  }
  return result;
}

}  // namespace halfbyte
