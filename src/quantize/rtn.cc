#include "quantize/rtn.h"

#include <map>

#include "core/fail.h"
#include "formats/source_dtype.h"
#include "ops/quantize/op.h"
#include "ops/transform_input/op.h"

namespace halfbyte {

Array<float> transform_weight(const TensorView& weight, const InputTransform& input, ThreadPool& pool) {
  const std::int64_t rows = weight.shape[0], channels = weight.shape[1];
  Array<float> values(rows * channels), out(rows * input.info.width);
  pool.parallel_for(rows, [&](std::int64_t row) {
    for (std::int64_t i = row * channels; i < (row + 1) * channels; ++i)
      values[i] = load_element(weight.dtype, weight.data.data(), i);
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

QuantizeSummary quantize_rtn(const Checkpoint& checkpoint, const QuantizePlan& plan,
                             const std::filesystem::path& out, ThreadPool& pool,
                             const std::function<void(std::int64_t, const std::string&)>& progress) {
  HalfbyteQuantization quantization;
  quantization.activations = plan.activations;
  std::vector<TensorSpec> specs;
  std::map<std::string, const InputTransform*> inputs;
  for (const PlannedInput& input : plan.inputs) {
    inputs.emplace(input.name, &input.transform);
    quantization.inputs.emplace(input.name, input.transform.info);
    for (TensorSpec& spec : input_specs(input.name, input.transform.info)) specs.push_back(std::move(spec));
  }
  for (const PlannedTensor& tensor : plan.tensors) {
    const TensorView& view = *checkpoint.plain(tensor.name);
    if (!tensor.spec) {
      specs.push_back({tensor.name, view.dtype, view.shape});
      continue;
    }
    QuantizedInfo info{.spec = *tensor.spec, .shape = view.shape, .source = view.dtype};
    if (!tensor.input.empty()) {
      info.shape[1] = inputs.at(tensor.input)->info.width;
      info.input = tensor.input;
    }
    for (TensorSpec& part : part_specs(tensor.name, info)) specs.push_back(std::move(part));
    quantization.tensors.emplace(tensor.name, info);
  }

  QuantizeSummary summary;
  SafetensorsWriter writer(out / "model.safetensors", std::move(specs), {{"format", "pt"}});
  for (const PlannedInput& input : plan.inputs) append_input(writer, input.name, input.transform);
  std::int64_t done = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    const TensorView& view = *checkpoint.plain(tensor.name);
    PrecisionTotals& totals =
        summary.precisions[tensor.spec ? to_string(*tensor.spec) : std::string(dtype_name(view.dtype))];
    if (tensor.spec) {
      const std::string name = checkpoint.files().file_of(tensor.name).path() + ": " + tensor.name;
      const Shape& shape = quantization.tensors.at(tensor.name).shape;
      if (tensor.input.empty()) {
        append_parts(writer, tensor.name,
                     quantize(view, *tensor.spec, pool, {.name = name, .global_scale = {}}));
      } else {
        const Array<float> values = transform_weight(view, *inputs.at(tensor.input), pool);
        append_parts(writer, tensor.name,
                     quantize({.dtype = DType::f32, .shape = shape, .data = values.as_bytes()}, *tensor.spec,
                              pool, {.name = name, .global_scale = {}}));
      }
      totals.bytes += quantized_bytes(*tensor.spec, shape);
    } else {
      writer.append(tensor.name, view.data);
      totals.bytes += static_cast<std::int64_t>(view.data.size());
    }
    ++totals.tensors;
    totals.elements += view.elements();
    checkpoint.drop(tensor.name);
    if (progress) progress(++done, tensor.name);
  }
  writer.finish();
  summary.file_bytes = writer.file_bytes();
  write_model_files(checkpoint, quantization, out);
  return summary;
}

}  // namespace halfbyte
