#include "quantize/write.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "core/fail.h"
#include "formats/source_dtype.h"
#include "io/sha256.h"
#include "io/text.h"
#include "ops/quantize/op.h"
#include "ops/transform_input/op.h"
#include "quantize/scale_search.h"
#include "quantize/unfinished.h"

namespace halfbyte {

namespace {

// Takes all tensors' bytes in turn and keeps their sums; what an earlier run has finished is taken over where its sum fits.
class Sink {
 public:
  Sink(SafetensorsWriter& writer, UnfinishedRun* unfinished) : writer_(writer), unfinished_(unfinished) {}

  // Whether all of these are in the file already.
  bool finished(const std::vector<TensorSpec>& parts) {
    if (!unfinished_) return false;
    for (const TensorSpec& part : parts)
      if (!unfinished_->finished().contains(part.name)) return false;
    std::map<std::string, std::string> sums;
    for (const TensorSpec& part : parts) {
      try {
        sums[part.name] = writer_.take_over(part.name);
      } catch (const Error&) {
        // The file ends before, as after a power cut.
      }
      if (sums[part.name] != unfinished_->finished().at(part.name)) {
        for (const TensorSpec& again : parts) writer_.restart(again.name);
        return false;
      }
    }
    sums_.merge(sums);
    return true;
  }

  // What finished() has found of a tensor.
  void read(const std::string& name, std::span<std::byte> bytes) { writer_.read(name, bytes); }

  void append(const std::string& name, std::span<const std::byte> bytes) {
    writer_.append(name, bytes);
    const std::string sum = sha256(bytes);
    if (unfinished_) unfinished_->add(name, sum);
    sums_[name] = sum;
  }

  const std::map<std::string, std::string>& sums() const { return sums_; }

 private:
  SafetensorsWriter& writer_;
  UnfinishedRun* unfinished_;
  std::map<std::string, std::string> sums_;
};

std::vector<std::byte> divided(const TensorView& view, std::span<const float> scale) {
  std::vector<std::byte> bytes(view.data.size());
  for (std::int64_t i = 0; i < view.elements(); ++i) {
    const float value = load_element(view.dtype, view.data.data(), i) / scale[static_cast<std::size_t>(i)];
    store_element(view.dtype, bytes.data(), i, value);
  }
  return bytes;
}

class Writer {
 public:
  Writer(const Checkpoint& checkpoint, const QuantizePlan& plan, ThreadPool& pool, const Producers& producers,
         WeightRounder* rounder)
      : checkpoint_(checkpoint),
        plan_(plan),
        pool_(pool),
        rounder_(rounder),
        quantization_(planned_quantization(checkpoint, plan)),
        row_scales_(folded_scales(checkpoint, plan, producers)) {
    for (const PlannedInput& input : plan.inputs) inputs_.emplace(input.name, &input.transform);
  }

  const HalfbyteQuantization& quantization() const { return quantization_; }

  std::vector<TensorSpec> specs() const {
    std::vector<TensorSpec> specs;
    for (const auto& [name, info] : quantization_.inputs)
      for (TensorSpec& spec : input_specs(name, info)) specs.push_back(std::move(spec));
    for (const PlannedTensor& tensor : plan_.tensors)
      for (TensorSpec& part : parts(tensor)) specs.push_back(std::move(part));
    return specs;
  }

  // The stored tensors of one planned tensor.
  std::vector<TensorSpec> parts(const PlannedTensor& tensor) const {
    if (tensor.spec) return part_specs(tensor.name, quantization_.tensors.at(tensor.name));
    return {{tensor.name, checkpoint_.dtype(tensor.name), checkpoint_.shape(tensor.name)}};
  }

  std::int64_t bytes(const PlannedTensor& tensor) const {
    return tensor.spec ? stored_bytes_of(quantization_.tensors.at(tensor.name))
                       : checkpoint_.stored_bytes(tensor.name);
  }

  void write(const PlannedTensor& tensor, Sink& sink) {
    const TensorView& view = *checkpoint_.plain(tensor.name);
    if (!tensor.spec) {
      const bool floats = view.dtype == DType::f32 || view.dtype == DType::bf16 || view.dtype == DType::f16;
      if (floats && !std::isfinite(tensor_absmax(view, pool_)))
        fail_input("{}: {} holds a NaN or an infinity; the model is damaged, get it again",
                   checkpoint_.files().path(), quote(tensor.name));
      const auto scale = row_scales_.find(tensor.name);
      if (scale == row_scales_.end())
        sink.append(tensor.name, view.data);
      else
        sink.append(tensor.name, divided(view, scale->second));
      return;
    }
    if (chooses(tensor)) {
      hand_over(tensor, [&](const WeightRounder::Weight& weight) {
        for_each_part(
            tensor.name, rounder_->round(weight),
            [&](const std::string& part, std::span<const std::byte> bytes) { sink.append(part, bytes); });
      });
      return;
    }
    const QuantizedInfo& info = quantization_.tensors.at(tensor.name);
    const std::string name = checkpoint_.files().file_of(tensor.name).path() + ": " + tensor.name;
    QuantizeOptions options{.name = name, .global_scale = group_scale(tensor)};
    const auto append = [&](const std::string& under, const QuantizedTensor& quantized) {
      for_each_part(under, quantized, [&](const std::string& part, std::span<const std::byte> bytes) {
        sink.append(part, bytes);
      });
    };
    if (!is_changed(tensor)) return append(tensor.name, quantize(view, *tensor.spec, pool_, options));
    const Array<float> values = changed(tensor);
    const auto columns = [&](std::int64_t first, std::int64_t count) {
      return slice(values, info.shape, first, count);
    };
    const std::int64_t main = info.shape[1] - info.outliers;
    if (!info.outliers)
      return append(tensor.name,
                    quantize({.dtype = DType::f32, .shape = info.shape, .data = values.as_bytes()},
                             *tensor.spec, pool_, options));
    const Array<float> first = columns(0, main), last = columns(main, info.outliers);
    append(tensor.name,
           quantize({.dtype = DType::f32, .shape = {info.shape[0], main}, .data = first.as_bytes()},
                    *tensor.spec, pool_, options));
    append(outlier_name(tensor.name),
           quantize({.dtype = DType::f32, .shape = {info.shape[0], info.outliers}, .data = last.as_bytes()},
                    info.outlier_spec, pool_, {.name = name, .global_scale = {}}));
  }

  // A tensor that an earlier run has finished.
  void take_over(const PlannedTensor& tensor, Sink& sink) {
    if (!chooses(tensor)) return;
    QuantizedTensor quantized = make_quantized(*tensor.spec, quantization_.tensors.at(tensor.name).shape,
                                               checkpoint_.dtype(tensor.name));
    // The parts are views of this tensor's own arrays.
    for_each_part(tensor.name, quantized, [&](const std::string& part, std::span<const std::byte> bytes) {
      sink.read(part, {const_cast<std::byte*>(bytes.data()), bytes.size()});
    });
    hand_over(tensor, [&](const WeightRounder::Weight& weight) { rounder_->accept(weight, quantized); });
  }

  // All tensors in the order in which they are written.
  std::vector<const PlannedTensor*> ordered() const {
    std::vector<const PlannedTensor*> tensors;
    const std::vector<std::string> first = rounder_ ? rounder_->order() : std::vector<std::string>{};
    for (const std::string& name : first) {
      const auto tensor = std::ranges::find(plan_.tensors, name, &PlannedTensor::name);
      if (tensor != plan_.tensors.end()) tensors.push_back(&*tensor);
    }
    for (const PlannedTensor& tensor : plan_.tensors)
      if (std::ranges::find(first, tensor.name) == first.end()) tensors.push_back(&tensor);
    return tensors;
  }

 private:
  // Whether the rounder chooses this tensor's codes.
  bool chooses(const PlannedTensor& tensor) const {
    return rounder_ && tensor.spec && !quantization_.tensors.at(tensor.name).outliers;
  }

  template <typename Use>
  void hand_over(const PlannedTensor& tensor, Use use) {
    const std::string name = checkpoint_.files().file_of(tensor.name).path() + ": " + tensor.name;
    const std::optional<float> scale = group_scale(tensor);
    const Array<float> values = changed(tensor);
    use({.tensor = tensor,
         .name = name,
         .values = {values.data(), static_cast<std::size_t>(values.size())},
         .shape = quantization_.tensors.at(tensor.name).shape,
         .global_scale = scale});
  }

  static Array<float> slice(const Array<float>& values, const Shape& shape, std::int64_t first,
                            std::int64_t count) {
    Array<float> out(shape[0] * count);
    for (std::int64_t row = 0; row < shape[0]; ++row)
      std::copy_n(values.data() + row * shape[1] + first, count, out.data() + row * count);
    return out;
  }

  bool is_changed(const PlannedTensor& tensor) const {
    if (row_scales_.contains(tensor.name)) return true;
    if (tensor.input.empty()) return false;
    const InputInfo& info = inputs_.at(tensor.input)->info;
    return info.scaled || info.hadamard > 1 || info.gathered;
  }

  Array<float> changed(const PlannedTensor& tensor) {
    const TensorView& view = *checkpoint_.plain(tensor.name);
    InputTransform none;
    none.info.channels = none.info.width = view.shape[1];
    const auto scale = row_scales_.find(tensor.name);
    return transform_weight(view, tensor.input.empty() ? none : *inputs_.at(tensor.input), pool_,
                            scale == row_scales_.end() ? std::span<const float>{} : scale->second);
  }

  // nvfp4: the global scale of all tensors of the group, found when its first one is written. A rounder
  // may raise block scales, so there is head room for them.
  std::optional<float> group_scale(const PlannedTensor& tensor) {
    if (tensor.scale_group.empty()) return std::nullopt;
    const auto known = group_scales_.find(tensor.scale_group);
    if (known != group_scales_.end()) return known->second;
    float absmax = 0.0f;
    DType source = DType::f32;
    for (const PlannedTensor& other : plan_.tensors) {
      if (other.scale_group != tensor.scale_group) continue;
      const TensorView& view = *checkpoint_.plain(other.name);
      float largest = 0.0f;
      if (is_changed(other)) {
        const Array<float> values = changed(other);
        largest =
            tensor_absmax({.dtype = DType::f32, .shape = {values.size()}, .data = values.as_bytes()}, pool_);
      } else {
        largest = tensor_absmax(view, pool_);
        source = view.dtype;
      }
      if (!std::isfinite(largest))
        fail_input("{}: {} holds a NaN or an infinity and cannot be quantized", checkpoint_.files().path(),
                   quote(other.name));
      absmax = std::max(absmax, largest);
      if (&other != &tensor) checkpoint_.drop(other.name);
    }
    const auto rule = chooses(tensor) ? search_global_scale : nvfp4_global_scale;
    return group_scales_[tensor.scale_group] = rule(tensor.spec->global_scale, absmax, source);
  }

  const Checkpoint& checkpoint_;
  const QuantizePlan& plan_;
  ThreadPool& pool_;
  WeightRounder* rounder_;
  HalfbyteQuantization quantization_;
  std::map<std::string, std::vector<float>> row_scales_;  // by tensor
  std::map<std::string, const InputTransform*> inputs_;
  std::map<std::string, float> group_scales_;
};

}  // namespace

InputTransform stored_input(const PlannedInput& input) {
  InputTransform stored = input.transform;
  if (!input.folded_into.empty()) {
    stored.info.scaled = false;
    stored.scale.clear();
  }
  return stored;
}

HalfbyteQuantization planned_quantization(const Checkpoint& checkpoint, const QuantizePlan& plan) {
  HalfbyteQuantization quantization;
  quantization.activations = plan.activations;
  for (const PlannedInput& input : plan.inputs)
    quantization.inputs.emplace(input.name, stored_input(input).info);
  for (const PlannedTensor& tensor : plan.tensors) {
    if (!tensor.spec) continue;
    QuantizedInfo info{.spec = *tensor.spec,
                       .shape = checkpoint.shape(tensor.name),
                       .source = checkpoint.dtype(tensor.name)};
    if (!tensor.input.empty()) {
      const InputInfo& input = quantization.inputs.at(tensor.input);
      info.shape[1] = input.width;
      info.input = tensor.input;
      info.outliers = input.outliers;
      info.outlier_spec = input.outlier_spec;
    }
    info.own_activations = tensor.activations != plan.activations;
    if (info.own_activations) info.activations = tensor.activations;
    quantization.tensors.emplace(tensor.name, std::move(info));
  }
  return quantization;
}

std::map<std::string, std::vector<float>> folded_scales(const Checkpoint& checkpoint,
                                                        const QuantizePlan& plan,
                                                        const Producers& producers) {
  std::map<std::string, std::vector<float>> scales;
  for (const PlannedInput& input : plan.inputs) {
    if (input.folded_into.empty()) continue;
    const auto producer = producers.find(input.name);
    if (producer == producers.end() || producer->second.tensor != input.folded_into)
      fail_input("the plan folds {} into {}, which does not compute it in this model", input.name,
                 quote(input.folded_into));
    std::vector<float>& scale = scales[input.folded_into];
    scale.assign(static_cast<std::size_t>(checkpoint.shape(input.folded_into)[0]), 1.0f);
    for (std::size_t k = 0; k < input.transform.scale.size(); ++k)
      scale.at(static_cast<std::size_t>(producer->second.rows[k])) = input.transform.scale[k];
  }
  return scales;
}

Array<float> transform_weight(const TensorView& weight, const InputTransform& input, ThreadPool& pool,
                              std::span<const float> row_scale) {
  const std::int64_t rows = weight.shape[0], channels = weight.shape[1];
  Array<float> values(rows * channels), out(rows * input.info.width);
  pool.parallel_for(rows, [&](std::int64_t row) {
    const float divisor = row_scale.empty() ? 1.0f : row_scale[static_cast<std::size_t>(row)];
    for (std::int64_t i = row * channels; i < (row + 1) * channels; ++i)
      values[i] = load_element(weight.dtype, weight.data.data(), i) / divisor;
  });
  transform_input({.rows = rows,
                   .channels = channels,
                   .x = values.data(),
                   .scale = input.info.scaled ? input.scale.data() : nullptr,
                   .direction = ScaleDirection::multiply,
                   .hadamard = input.info.hadamard,
                   .columns = input.info.gathered ? input.columns.data() : nullptr,
                   .width = input.info.width,
                   .out = out.data()},
                  pool);
  return out;
}

QuantizeSummary write_quantized(const Checkpoint& checkpoint, const QuantizePlan& plan,
                                const std::filesystem::path& out, ThreadPool& pool,
                                const WriteOptions& options, const Producers& producers) {
  HB_DCHECK(options.record || !options.resumable);
  std::optional<UnfinishedRun> unfinished;
  if (options.resumable) unfinished.emplace(out, *options.record);
  Writer tensors(checkpoint, plan, pool, producers, options.rounder);
  SafetensorsWriter file(out / "model.safetensors", tensors.specs(), {{"format", "pt"}},
                         options.resumable ? Unfinished::keep : Unfinished::remove);
  Sink sink(file, unfinished ? &*unfinished : nullptr);
  QuantizeSummary summary;
  for (const PlannedInput& input : plan.inputs) {
    const InputTransform stored = stored_input(input);
    if (!sink.finished(input_specs(input.name, stored.info)))
      for_each_part(input.name, stored, [&](const std::string& name, std::span<const std::byte> bytes) {
        sink.append(name, bytes);
      });
  }
  std::int64_t done = 0;
  for (const PlannedTensor* planned : tensors.ordered()) {
    const PlannedTensor& tensor = *planned;
    if (sink.finished(tensors.parts(tensor))) {
      ++summary.taken_over;
      tensors.take_over(tensor, sink);
    } else {
      tensors.write(tensor, sink);
    }
    PrecisionTotals& totals =
        summary.precisions[tensor.spec ? to_string(*tensor.spec)
                                       : std::string(dtype_name(checkpoint.dtype(tensor.name)))];
    ++totals.tensors;
    totals.elements += count(checkpoint.shape(tensor.name));
    totals.bytes += tensors.bytes(tensor);
    checkpoint.drop(tensor.name);
    if (options.progress) options.progress(++done, tensor.name);
  }
  file.finish();
  summary.file_bytes = file.file_bytes();
  write_model_files(checkpoint, tensors.quantization(), out);
  if (options.record) {
    if (unfinished) unfinished->close();
    write_manifest(out, {.run = *options.record,
                         .files = {{"model.safetensors", {file.file_bytes(), file.header_sha256()}}},
                         .tensors = sink.sums()});
  }
  return summary;
}

}  // namespace halfbyte
