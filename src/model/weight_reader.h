// Reads a model's tensors from a checkpoint, checked against its config: what every engine does before it has them its own way.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "model/layer.h"
#include "model/linears.h"

namespace halfbyte {

class WeightReader {
 public:
  // Both must outlive the reader.
  WeightReader(const Checkpoint& checkpoint, ThreadPool& pool) : checkpoint_(checkpoint), pool_(pool) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }

  // Marks the tensor as used and counts its elements. Throws bad_input where it is missing or has another shape.
  void claim(const std::string& name, const Shape& expected);
  // The named tensor in float32; it must have that shape. Refuses values that are not finite.
  Array<float> tensor(const std::string& name, const Shape& expected);
  // All of a linear but its weight, which is claimed.
  Linear outline(const LinearInfo& info);
  // All of it.
  Linear linear(const LinearInfo& info);

  std::int64_t parameters() const {
    return parameters_;
  }  // elements claimed so far, columns that a method added left out
  // Tensors of the file that nobody claimed; old exports carry the rotary frequencies, which are recomputed.
  std::vector<std::string> unused() const;

 private:
  const InputInfo* input_of(const LinearInfo& info) const;
  std::shared_ptr<const LinearTransform> transform(const std::string& name);
  Array<float> values(const std::string& name);
  Array<float> decode(const std::string& name);
  Array<float> widen(const std::string& name);
  void check_finite(const std::string& name, const Array<float>& values);

  const Checkpoint& checkpoint_;
  ThreadPool& pool_;
  std::set<std::string> used_;
  std::map<std::string, std::shared_ptr<const LinearTransform>> transforms_;
  std::int64_t parameters_ = 0;
};

// The type of a tensor that is stored as it is; throws unsupported for any but f32, bf16 and f16.
DType plain_dtype(const Checkpoint& checkpoint, const std::string& name);

// Throws bad_input where the tensor is missing or has another shape.
void check_tensor(const Checkpoint& checkpoint, const std::string& name, const Shape& expected);

// Sentences for the user: tensors that the model does not use.
void warn_of_unused(const WeightReader& reader, const ModelConfig& config,
                    std::vector<std::string>& warnings);

// The same about a head of its own in a file that says the embedding is the head.
std::string warning_of_own_head(const Checkpoint& checkpoint);
[[noreturn]] void fail_without_head(const Checkpoint& checkpoint);

}  // namespace halfbyte
