// What will be done with every tensor of a model, as data: made before the first byte is read, printed after the last.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace halfbyte {

struct PlannedTensor {
  std::string name;
  std::optional<QuantSpec> spec;  // nothing: copied as it is
  std::string reason;             // why it is copied
  std::string input = {};         // planned input that a method changes, or empty
};

// An input that a method changes, and with it the columns of all quantized linears that read it.
struct PlannedInput {
  std::string name;
  InputTransform transform;
};

struct QuantizePlan {
  std::vector<PlannedTensor> tensors;  // all of the checkpoint, by name
  std::optional<ActivationSpec> activations;
  std::vector<PlannedInput> inputs;
  std::vector<std::string> warnings;  // of the method, sentences for the user
};

struct PlanOptions {
  QuantSpec weights;
  std::optional<ActivationSpec> activations;
  // Linears to leave alone: a whole name ("model.layers.3.mlp.down_proj"), a part of one ("down_proj", "layers.3"), or
  // a pattern with * and ? over the whole name. One that matches nothing is an error, except "lm_head".
  std::vector<std::string> keep;
};

// linears: names of the model's linear layers (without ".weight"), those that are quantized unless kept.
// Throws where the model is quantized already or an option fits nothing.
QuantizePlan make_plan(const Checkpoint& checkpoint, std::span<const std::string> linears,
                       const PlanOptions& options);

// A linear (without ".weight") and the name of what it reads; linears of one input see the same values.
struct LinearSource {
  std::string name, input;
};

// An input with the planned tensors that read it: only those that will be quantized.
struct InputGroup {
  std::string input;
  std::int64_t channels = 0;
  std::vector<PlannedTensor*> tensors;  // at least one
};

// All inputs of a plan with something to quantize, in the order of the linears.
std::vector<InputGroup> group_by_input(const Checkpoint& checkpoint, QuantizePlan& plan,
                                       std::span<const LinearSource> linears);

}  // namespace halfbyte
