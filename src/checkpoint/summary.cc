#include "checkpoint/summary.h"

#include <set>

namespace halfbyte {

CheckpointSummary summarize(const Checkpoint& checkpoint) {
  CheckpointSummary summary;
  std::set<std::string> kinds;
  std::int64_t layer_bytes = 0, layer_elements = 0;
  for (const std::string& name : checkpoint.names()) {
    const Shape shape = checkpoint.shape(name);
    const std::int64_t bytes = checkpoint.stored_bytes(name);
    summary.bytes += bytes;
    if (shape.size() != 2 || name.find("embed") != std::string::npos || name.starts_with("lm_head."))
      continue;
    const auto quantized = checkpoint.quantization().tensors.find(name);
    const auto method = [&](const std::string& input) {
      return input.empty() ? "" : " " + checkpoint.quantization().inputs.find(input)->second.method;
    };
    kinds.insert(quantized != checkpoint.quantization().tensors.end()
                     ? to_string(quantized->second.spec) + method(quantized->second.input)
                     : std::string(dtype_name(checkpoint.plain(name)->dtype)));
    layer_bytes += bytes;
    // Padding and residual columns cost bytes, but are no weights of the model.
    const bool input =
        quantized != checkpoint.quantization().tensors.end() && !quantized->second.input.empty();
    layer_elements +=
        input ? shape[0] * checkpoint.quantization().inputs.find(quantized->second.input)->second.channels
              : count(shape);
  }
  for (const std::string& kind : kinds) summary.weights += (summary.weights.empty() ? "" : ", ") + kind;
  const auto& activations = checkpoint.quantization().activations;
  summary.activations = "float";
  if (activations)
    summary.activations = to_string(activations->spec) +
                          (activations->scope == ActivationScope::tensor ? " per tensor" : " per token");
  if (layer_elements)
    summary.bits_per_weight = 8.0 * static_cast<double>(layer_bytes) / static_cast<double>(layer_elements);
  return summary;
}

}  // namespace halfbyte
