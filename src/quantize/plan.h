// What will be done with every tensor of a model, as data: made before the first byte is read, printable, editable as a
// file (plan_file.h).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace halfbyte {

struct PlannedTensor {
  std::string name;
  std::optional<QuantSpec> spec;                   // nothing: copied as it is
  std::string reason;                              // why it is copied
  std::string input = {};                          // planned input that a method changes, or empty
  std::optional<ActivationSpec> activations = {};  // how engines round its input
  std::string scale_group = {};  // tensors of one group share nvfp4's global scale; empty: one of its own
};

// Order of an input's columns before residual or outlier ones.
enum class ColumnOrder : std::uint8_t {
  natural,  // as they are
  falling,  // by falling rank, as ARCQuant publishes it
  rising,   // by rising rank, so that outliers are last, as Atom does
};

// "natural", "absmax" (falling), "rising".
std::string_view column_order_name(ColumnOrder order);
std::optional<ColumnOrder> find_column_order(std::string_view name);

// An input that a method changes, and with it the columns of all quantized linears that read it.
struct PlannedInput {
  std::string name;
  InputTransform transform;
  ColumnOrder order = ColumnOrder::natural;
  std::vector<std::int32_t> ranking =
      {};  // channels, most important first: the columns come from it; or empty
  // Tensor that computes this input and has taken the scale in, so that nothing is left to do at run time; or empty.
  std::string folded_into = {};
};

// How codes and scales of weights are chosen.
enum class Rounding : std::uint8_t {
  nearest,   // scales from the largest magnitude, codes to the nearest
  search,    // scales that minimise the error weighted by importance (scale_search.h)
  feedback,  // the same, and later columns take up what rounding earlier ones changed (gptq.h)
};
std::string_view rounding_name(Rounding rounding);  // "nearest", "search", "feedback"
std::optional<Rounding> find_rounding(std::string_view name);

// What error feedback goes by: the samples that run through the model layer by layer (calibrate/samples.h), and how.
struct FeedbackOptions {
  std::int64_t samples = 0, seq_len = 0;
  std::uint64_t seed = 0;
  double damping = 0.01;
  bool mean_damping = false;  // of the mean of the second moments instead of each (DampingKind)
  // How far weights are moved, before they are rounded, to what gives the original model's outputs on the inputs that the
  // quantized one has: 0 not at all, 1 all the way in the sense of least squares (match_output.h).
  double match_output = 0;
};

// How much each channel of an input counts in the error of the weights that read it.
struct InputImportance {
  std::vector<float> channels;  // [K] mean square of what is rounded
  std::vector<float> residual =
      {};  // [K] of the channel's residual; empty where there are no residual channels
};

struct QuantizePlan {
  std::string method = "rtn";
  std::map<std::string, std::string> options = {};  // that the plan was made with, for people
  std::vector<PlannedTensor> tensors;               // all of the checkpoint, by name
  std::optional<ActivationSpec> activations;        // of every quantized linear that no rule gives another
  std::vector<PlannedInput> inputs;
  Rounding rounding = Rounding::nearest;
  FeedbackOptions feedback = {};                                        // Rounding::feedback
  std::map<std::string, InputImportance, std::less<>> importance = {};  // by input; Rounding::search
  std::vector<std::string> warnings;  // of the method, sentences for the user
};

// Another format for some linears; among several that match one, the last counts.
struct FormatRule {
  std::string pattern;  // as in PlanOptions::keep
  QuantSpec weights;    // Format::bf16: left alone
  std::optional<ActivationSpec> activations;
};

// The planned input of that name, or null where no method changes it.
const PlannedInput* find_input(const QuantizePlan& plan, std::string_view name);
PlannedInput* find_input(QuantizePlan& plan, std::string_view name);

struct PlanOptions {
  QuantSpec weights;
  std::optional<ActivationSpec> activations;
  // Linears to leave alone: a whole name ("model.layers.3.mlp.down_proj"), a part of one ("down_proj", "layers.3"), or
  // a pattern with * and ? over the whole name. One that matches nothing is an error, except "lm_head".
  std::vector<std::string> keep;
  std::vector<FormatRule> rules = {};
};

// Whether such a pattern means that linear.
bool matches_linear(std::string pattern, const std::string& linear);

// linears: names of the model's linear layers (without ".weight"), those that are quantized unless kept.
// Throws where the model is quantized already or an option fits nothing.
QuantizePlan make_plan(const Checkpoint& checkpoint, std::span<const std::string> linears,
                       const PlanOptions& options);

// A linear (without ".weight") and the name of what it reads; linears of one input see the same values.
struct LinearSource {
  std::string name, input;
};

// What computes an input: the gains of a norm, or the rows of a linear. A factor of a channel can be moved into it.
struct Producer {
  std::string tensor;  // "model.layers.0.input_layernorm.weight", "model.layers.0.mlp.up_proj.weight"
  std::vector<std::int32_t> rows;  // [channels]: its gain or row that scales that channel
};
using Producers = std::map<std::string, Producer, std::less<>>;  // by input

// An input with the planned tensors that read it: only those that will be quantized.
struct InputGroup {
  std::string input;
  std::int64_t channels = 0;
  std::vector<PlannedTensor*> tensors;  // at least one
  bool all = true;                      // no linear reads the input besides these
};

// All inputs of a plan with something to quantize, in the order of the linears. With a filter: only the tensors it takes.
std::vector<InputGroup> group_by_input(const Checkpoint& checkpoint, QuantizePlan& plan,
                                       std::span<const LinearSource> linears,
                                       const std::function<bool(const PlannedTensor&)>& filter = {});

// Makes the transform's columns, width and what goes with them from order, ranking, residual and outliers. block: a
// multiple of it are the columns before residual ones, zero columns fill up.
void set_columns(PlannedInput& input, std::int64_t block);

// Elements that must stay together along a row of that input: the least common multiple of all blocks of its tensors.
std::int64_t common_block(const InputGroup& group);

// Lets nvfp4 weights that read the same input share their global scale, as engines that fuse them (q, k, v; gate, up) need.
void share_weight_scales(const Checkpoint& checkpoint, QuantizePlan& plan,
                         std::span<const LinearSource> linears);

}  // namespace halfbyte
