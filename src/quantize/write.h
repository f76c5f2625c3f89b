// Carries a plan out: reads the model tensor by tensor, rounds what the plan says, writes the checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "core/thread_pool.h"
#include "formats/quantized_tensor.h"
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

// What is stored of an input, and so left to run time: a scale that a producer has taken in is not.
InputTransform stored_input(const PlannedInput& input);

// What the written checkpoint will say of itself.
HalfbyteQuantization planned_quantization(const Checkpoint& checkpoint, const QuantizePlan& plan);

// By tensor: what each of its rows (a norm: gains) is divided by, because inputs have folded their scales into it. Throws bad_input
// where a plan folds into what does not compute the input.
std::map<std::string, std::vector<float>> folded_scales(const Checkpoint& checkpoint,
                                                        const QuantizePlan& plan, const Producers& producers);

// Chooses codes and scales in place of rounding to nearest.
class WeightRounder {
 public:
  struct Weight {
    const PlannedTensor& tensor;
    std::string_view name;              // with its file, for messages
    std::span<const float> values;      // [N, width], as transform_weight gives them
    Shape shape;                        // [N, width]
    std::optional<float> global_scale;  // nvfp4: what the tensor or its group has to have
  };

  virtual ~WeightRounder() = default;
  // Is called once for every quantized tensor without outlier columns, in the order of order().
  virtual QuantizedTensor round(const Weight& weight) = 0;
  // In round()'s place where an interrupted run has finished that tensor.
  virtual void accept(const Weight&, const QuantizedTensor&) {}
  // Names of tensors, the first to be rounded first; those that are not named come last.
  virtual std::vector<std::string> order() const { return {}; }
};

struct WriteOptions {
  // Recorded in the manifest. Where it is null no manifest is written.
  const RunRecord* record = nullptr;
  // The folder is kept where the run ends early, with a list of what is finished; a later run with the same record goes on
  // there. Needs a record. Throws where the folder holds an unfinished run with another record, naming the difference.
  bool resumable = false;
  WeightRounder* rounder = nullptr;  // null: to nearest
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
