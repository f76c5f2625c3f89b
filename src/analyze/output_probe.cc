#include "analyze/output_probe.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "io/text.h"
#include "ops/dequantize/op.h"
#include "ops/matmul_f32/op.h"
#include "ops/quantize/op.h"
#include "quantize/write.h"

namespace halfbyte {

namespace {

// y [rows, out] = x [rows, columns] of W [out, stride], of which the first columns count.
Array<float> product(const float* x, std::int64_t rows, std::int64_t columns, const Array<float>& weight,
                     std::int64_t out, std::int64_t stride, ThreadPool& pool) {
  Array<float> y(rows * out);
  matmul_f32({.m = rows,
              .n = out,
              .k = columns,
              .activation = x,
              .activation_stride = columns,
              .weight = weight.data(),
              .weight_stride = stride,
              .out = y.data(),
              .out_stride = out},
             pool);
  return y;
}

// Sum of (a - b)^2, of a^2 where b is null: row by row, rows in order.
double square_sum(const Array<float>& a, const Array<float>* b, std::int64_t rows, ThreadPool& pool) {
  const std::int64_t columns = a.size() / rows;
  std::vector<double> sums(static_cast<std::size_t>(rows));
  pool.parallel_for(rows, [&](std::int64_t m) {
    double sum = 0;
    for (std::int64_t i = m * columns; i < (m + 1) * columns; ++i) {
      const double value = static_cast<double>(a[i]) - (b ? static_cast<double>((*b)[i]) : 0.0);
      sum += value * value;
    }
    sums[static_cast<std::size_t>(m)] = sum;
  });
  double sum = 0;
  for (const double row : sums) sum += row;
  return sum;
}

// Weights that read one input share nvfp4's global scale, as quantize makes it where nothing else is asked for.
std::optional<float> shared_scale(const std::vector<Array<float>>& weights, const QuantSpec& spec,
                                  DType source, ThreadPool& pool) {
  if (spec.format != Format::nvfp4) return std::nullopt;
  float largest = 0.0f;
  for (const Array<float>& weight : weights)
    largest = std::max(
        largest,
        tensor_absmax({.dtype = DType::f32, .shape = {weight.size()}, .data = weight.as_bytes()}, pool));
  return nvfp4_global_scale(spec.global_scale, largest, source);
}

}  // namespace

OutputProbe::OutputProbe(const Checkpoint& checkpoint, std::vector<std::string> linears,
                         std::vector<Variant> variants)
    : checkpoint_(checkpoint), variants_(std::move(variants)) {
  for (std::string& name : linears)
    linears_.push_back({std::move(name), 0, std::vector<Sums>(variants_.size())});
}

void OutputProbe::add(const float* x, std::int64_t rows, const std::vector<EngineInput>& inputs,
                      ThreadPool& pool) {
  tokens_ += rows;
  std::vector<const TensorView*> views;
  for (const LinearSums& linear : linears_) views.push_back(checkpoint_.plain(linear.name + ".weight"));
  const std::int64_t channels = views[0]->shape[1];
  std::vector<Array<float>> outputs;  // unrounded
  for (std::size_t l = 0; l < linears_.size(); ++l) {
    const Array<float> weight = transform_weight(*views[l], unchanged_input(channels), pool);
    outputs.push_back(product(x, rows, channels, weight, views[l]->shape[0], channels, pool));
    linears_[l].square += square_sum(outputs[l], nullptr, rows, pool);
  }
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    const auto& [spec, transform] = variants_[v];
    const EngineInput& input = inputs[v];
    if (spec.format == Format::bf16) continue;  // left as it is
    const bool changes = input.changed.size() > 0;
    std::vector<Array<float>> weights(views.size());
    for (std::size_t l = 0; l < views.size(); ++l) weights[l] = transform_weight(*views[l], *transform, pool);
    const std::optional<float> global =
        shared_scale(weights, spec, changes ? DType::f32 : views[0]->dtype, pool);
    for (std::size_t l = 0; l < linears_.size(); ++l) {
      const std::string name = linears_[l].name + ".weight";
      const std::int64_t out = views[l]->shape[0], width = transform->info.width;
      const TensorView values{.dtype = DType::f32, .shape = {out, width}, .data = weights[l].as_bytes()};
      weights[l] = dequantize(
          quantize(changes ? values : *views[l], spec, pool, {.name = name, .global_scale = global}), pool);
      const Array<float> y =
          product(changes ? input.changed.data() : x, rows, input.main, weights[l], out, width, pool);
      linears_[l].variants[v].weights += square_sum(y, &outputs[l], rows, pool);
      if (!input.rounded.size()) continue;
      const Array<float> both = product(input.rounded.data(), rows, width, weights[l], out, width, pool);
      linears_[l].variants[v].both += square_sum(both, &outputs[l], rows, pool);
    }
  }
  for (const LinearSums& linear : linears_) checkpoint_.drop(linear.name + ".weight");
}

double OutputProbe::output_square(std::size_t linear) const {
  return linears_[linear].square / static_cast<double>(std::max<std::int64_t>(1, tokens_));
}

OutputError OutputProbe::error(std::size_t linear, std::size_t variant) const {
  const LinearSums& sums = linears_[linear];
  const auto relative = [&](double sum) { return sums.square > 0 ? sum / sums.square : sum > 0 ? 1.0 : 0.0; };
  const Sums& found = sums.variants[variant];
  const double weights = relative(found.weights);
  return {has_row_blocks(variants_[variant].spec.format) ? relative(found.both) : weights, weights};
}

}  // namespace halfbyte
