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
};

struct QuantizePlan {
  std::vector<PlannedTensor> tensors;  // all of the checkpoint, by name
  std::optional<ActivationSpec> activations;
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

}  // namespace halfbyte
