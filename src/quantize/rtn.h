// Round to nearest: every weight goes to the closest value its format has, after what a method planned for its input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "core/thread_pool.h"
#include "quantize/plan.h"

namespace halfbyte {

// What a run did, by precision ("nvfp4 pow2", "BF16", ..).
struct PrecisionTotals {
  std::int64_t tensors = 0, elements = 0, bytes = 0;
};
struct QuantizeSummary {
  std::map<std::string, PrecisionTotals> precisions;
  std::int64_t file_bytes = 0;
};

// A linear's weight [N, K] as it is multiplied with what `input` makes of activations: columns times the scales, rotated,
// gathered: [N, width], float32.
Array<float> transform_weight(const TensorView& weight, const InputTransform& input, ThreadPool& pool);

// Writes the planned checkpoint to the directory `out`: model.safetensors, config.json with its quantization_config,
// and the model's tokenizer files. One tensor is in memory at a time. out must be a fresh or temporary directory; on an
// exception it holds nothing useful.
QuantizeSummary quantize_rtn(
    const Checkpoint& checkpoint, const QuantizePlan& plan, const std::filesystem::path& out,
    ThreadPool& pool, const std::function<void(std::int64_t done, const std::string& name)>& progress = {});

}  // namespace halfbyte
