// The list of a model's linear layers and what feeds each: the one place that knows which of them share an
// input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace halfbyte {

// The four places of a layer whose output goes into linears, and the head's.
enum class LinearInput { attention, attention_output, mlp, mlp_product, head };

struct LinearInfo {
  std::string name;        // "model.layers.3.mlp.down_proj"; the weight is name + ".weight", [out, in]
  std::int64_t layer = 0;  // -1 for the head
  LinearInput input = LinearInput::attention;
  std::int64_t out = 0, in = 0;
  bool bias = false;
};

// "model.layers.3.attention", "model.layers.3.attention_output", ".mlp", ".mlp_product", "head": the name of that input in
// statistics, plans and checkpoints.
std::string input_name(LinearInput input, std::int64_t layer);

// All linears in the order they run: q, k, v, o, gate, up, down of each layer, then lm_head.
std::vector<LinearInfo> list_linears(const ModelConfig& config);

// What computes the input of linears, channel by channel: a norm's gains or a linear's rows.
struct InputProducer {
  std::string input;               // input_name
  std::string tensor;              // "model.layers.0.mlp.up_proj.weight"
  std::vector<std::int32_t> rows;  // [channels]: the gain or row that a channel is proportional to
};

// Of every input in the layers: the norms before q, k, v and before gate, up; v_proj's rows for o_proj (query heads of one
// group share them); up_proj's rows for down_proj. None where weights do not say it: the head's norm serves the head alone.
std::vector<InputProducer> list_producers(const ModelConfig& config);

}  // namespace halfbyte
