#include "checkpoint/summary.h"

#include <fmt/core.h>

#include <set>

namespace halfbyte {

CheckpointSummary summarize(const Checkpoint& checkpoint) {
  CheckpointSummary summary;
  std::set<std::string> kinds, activations;
  std::int64_t layer_bytes = 0, layer_elements = 0;
  for (const std::string& name : checkpoint.names()) {
    const Shape shape = checkpoint.shape(name);
    const std::int64_t bytes = checkpoint.stored_bytes(name);
    summary.bytes += bytes;
    if (shape.size() != 2 || name.find("embed") != std::string::npos || name.starts_with("lm_head."))
      continue;
    const auto quantized = checkpoint.quantization().tensors.find(name);
    // "int4 block 128 + 128 int8 atom": format, outlier columns, method.
    const auto kind_of = [&](const QuantizedInfo& info) {
      std::string kind = to_string(info.spec);
      if (info.outliers) kind += fmt::format(" + {} {}", info.outliers, to_string(info.outlier_spec));
      if (info.input.empty()) return kind;
      const std::string& method = checkpoint.quantization().inputs.find(info.input)->second.method;
      return method == "rtn" ? kind : kind + " " + method;
    };
    kinds.insert(quantized != checkpoint.quantization().tensors.end()
                     ? kind_of(quantized->second)
                     : std::string(dtype_name(checkpoint.dtype(name))));
    if (quantized != checkpoint.quantization().tensors.end())
      if (const auto& spec = checkpoint.quantization().activations_of(quantized->second))
        activations.insert(to_string(*spec));
    layer_bytes += bytes;
    // Padding and residual columns cost bytes, but are no weights of the model.
    const bool input =
        quantized != checkpoint.quantization().tensors.end() && !quantized->second.input.empty();
    layer_elements +=
        input ? shape[0] * checkpoint.quantization().inputs.find(quantized->second.input)->second.channels
              : count(shape);
  }
  for (const std::string& kind : kinds) summary.weights += (summary.weights.empty() ? "" : ", ") + kind;
  for (const std::string& kind : activations)
    summary.activations += (summary.activations.empty() ? "" : ", ") + kind;
  if (summary.activations.empty()) summary.activations = "float";
  if (layer_elements)
    summary.bits_per_weight = 8.0 * static_cast<double>(layer_bytes) / static_cast<double>(layer_elements);
  return summary;
}

}  // namespace halfbyte
