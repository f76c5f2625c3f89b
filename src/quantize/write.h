// Carries a plan out: reads the model tensor by tensor, rounds to nearest what the plan says, writes the checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "checkpoint/manifest.h"
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
  std::int64_t taken_over = 0;  // tensors that an earlier, interrupted run had finished
};

// A linear's weight [N, K] as it is multiplied with what `input` makes of activations: columns times the scales, rotated,
// gathered: [N, width], float32. Row n is first divided by row_scale[n], where there are such.
Array<float> transform_weight(const TensorView& weight, const InputTransform& input, ThreadPool& pool,
                              std::span<const float> row_scale = {});

struct WriteOptions {
  // Recorded in the manifest. Where it is null no manifest is written.
  const RunRecord* record = nullptr;
  // The folder is kept where the run ends early, with a list of what is finished; a later run with the same record goes on
  // there. Needs a record. Throws where the folder holds an unfinished run with another record, naming the difference.
  bool resumable = false;
  std::function<void(std::int64_t done, const std::string& name)> progress = {};
};

// Writes the planned checkpoint to the directory `out`: model.safetensors, config.json with its quantization_config, and the
// model's tokenizer files. One tensor is in memory at a time, of a shared global scale's group each twice in turn. producers
// must hold those that the plan folds into. out must be a fresh directory, or one that a resumable run left; on an exception
// it holds nothing useful but for the next run.
QuantizeSummary write_quantized(const Checkpoint& checkpoint, const QuantizePlan& plan,
                                const std::filesystem::path& out, ThreadPool& pool,
                                const WriteOptions& options = {}, const Producers& producers = {});

}  // namespace halfbyte
