#include "quantize/rtn.h"

#include "core/fail.h"
#include "ops/quantize/op.h"

namespace halfbyte {

QuantizeSummary quantize_rtn(const Checkpoint& checkpoint, const QuantizePlan& plan,
                             const std::filesystem::path& out, ThreadPool& pool,
                             const std::function<void(std::int64_t, const std::string&)>& progress) {
  HalfbyteQuantization quantization{.tensors = {}, .activations = plan.activations};
  std::vector<TensorSpec> specs;
  for (const PlannedTensor& tensor : plan.tensors) {
    const TensorView& view = *checkpoint.plain(tensor.name);
    if (!tensor.spec) {
      specs.push_back({tensor.name, view.dtype, view.shape});
      continue;
    }
    const QuantizedInfo info{.spec = *tensor.spec, .shape = view.shape, .source = view.dtype};
    for (TensorSpec& part : part_specs(tensor.name, info)) specs.push_back(std::move(part));
    quantization.tensors.emplace(tensor.name, info);
  }

  QuantizeSummary summary;
  SafetensorsWriter writer(out / "model.safetensors", std::move(specs), {{"format", "pt"}});
  std::int64_t done = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    const TensorView& view = *checkpoint.plain(tensor.name);
    PrecisionTotals& totals =
        summary.precisions[tensor.spec ? to_string(*tensor.spec) : std::string(dtype_name(view.dtype))];
    if (tensor.spec) {
      const std::string name = checkpoint.files().file_of(tensor.name).path() + ": " + tensor.name;
      append_parts(writer, tensor.name,
                   quantize(view, *tensor.spec, pool, {.name = name, .global_scale = {}}));
      totals.bytes += quantized_bytes(*tensor.spec, view.shape);
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
