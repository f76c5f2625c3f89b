#include "quantize/plan_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr int kVersion = 1;

Json input_to_json(const PlannedInput& input) {
  const InputInfo& info = input.transform.info;
  Json json = to_json(info);
  json.erase("width");  // follows from the rest
  json.erase("gathered");
  json.erase("scaled");
  if (!input.ranking.empty()) {
    json["order"] = column_order_name(input.order);
    json["residual"] = info.residual;
    if (!info.outliers) json["residual_scale"] = info.shared_scale ? "shared" : "own";
    json["ranking"] = input.ranking;
  }
  if (!input.transform.scale.empty()) json["scale"] = input.transform.scale;
  if (!input.folded_into.empty()) json["folded_into"] = input.folded_into;
  return json;
}

template <typename T>
std::vector<T> numbers(const Json& json, const char* key, std::int64_t expected, const std::string& where) {
  std::vector<T> values;
  for (const Json& value : json_array(json, key, where)) {
    const bool fits = std::is_same_v<T, float> ? value.is_number() : value.is_number_integer();
    if (!fits) fail_input("{}: {} holds {}, expected numbers", where, key, value.dump());
    values.push_back(value.get<T>());
  }
  if (static_cast<std::int64_t>(values.size()) != expected)
    fail_input("{}: {} holds {} numbers, expected {}, one a channel", where, key, values.size(), expected);
  return values;
}

// A misspelled member would otherwise be a change that has no effect.
void check_members(const Json& json, std::initializer_list<std::string_view> known,
                   const std::string& where) {
  for (const auto& [key, value] : json.items())
    if (std::ranges::find(known, key) == known.end()) {
      std::string list;
      for (const std::string_view name : known) list += (list.empty() ? "" : ", ") + std::string(name);
      fail_input("{}: has no member {}; there are {}", where, quote(key), list);
    }
}

std::vector<std::string> strings(const Json& json, const char* key, const std::string& where) {
  std::vector<std::string> values;
  for (const Json& value : json_array(json, key, where)) {
    if (!value.is_string()) fail_input("{}: {} holds {}, expected strings", where, key, value.dump());
    values.push_back(value.get<std::string>());
  }
  return values;
}

Json rounding_to_json(const QuantizePlan& plan) {
  Json json = {{"weights", rounding_name(plan.rounding)}};
  if (plan.rounding == Rounding::feedback) {
    const FeedbackOptions& feedback = plan.feedback;
    json["samples"] = feedback.samples;
    json["seq_len"] = feedback.seq_len;
    json["seed"] = feedback.seed;
    json["damping"] = feedback.damping;
    json["damping_of"] = feedback.mean_damping ? "mean" : "each";
    json["match_output"] = feedback.match_output;
  }
  for (const auto& [name, importance] : plan.importance) {
    json["importance"][name]["channels"] = importance.channels;
    if (!importance.residual.empty()) json["importance"][name]["residual"] = importance.residual;
  }
  return json;
}

std::vector<float> parse_importance(const Json& json, const char* key, const std::string& where) {
  const auto size = static_cast<std::int64_t>(json_array(json, key, where).size());
  std::vector<float> values = numbers<float>(json, key, size, where);
  for (const float value : values)
    if (!(value >= 0) || std::isinf(value))
      fail_input("{}: {} holds {}, expected numbers from 0 on", where, key, value);
  return values;
}

void parse_rounding(const Json& json, QuantizePlan& plan, const std::string& where) {
  check_members(
      json, {"weights", "samples", "seq_len", "seed", "damping", "damping_of", "match_output", "importance"},
      where);
  const std::string name = json_string(json, "weights", where);
  const auto found = find_rounding(name);
  if (!found)
    fail_input("{}: weights is {}, expected \"nearest\", \"search\" or \"feedback\"", where, quote(name));
  plan.rounding = *found;
  if (plan.rounding == Rounding::feedback) {
    FeedbackOptions& feedback = plan.feedback;
    feedback.samples = json_int64(json, "samples", where);
    feedback.seq_len = json_int64(json, "seq_len", where);
    const std::int64_t seed = json_int64(json, "seed", where);
    feedback.seed = static_cast<std::uint64_t>(seed);
    // Where one is missing the check below refuses it.
    feedback.damping = json_optional_double(json, "damping", where).value_or(NAN);
    feedback.match_output = json_optional_double(json, "match_output", where).value_or(NAN);
    const std::string of = json_string(json, "damping_of", where);
    if (of != "mean" && of != "each")
      fail_input("{}: damping_of is {}, expected \"mean\" or \"each\"", where, quote(of));
    feedback.mean_damping = of == "mean";
    if (feedback.samples < 1 || feedback.seq_len < 2 || seed < 0 ||
        !(feedback.damping > 0 && feedback.damping <= 1) ||
        !(feedback.match_output >= 0 && feedback.match_output <= 1))
      fail_input(
          "{}: expected samples from 1, seq_len from 2, seed from 0, damping above 0 and up to 1, "
          "match_output "
          "from 0 to 1",
          where);
  }
  if (!json_find(json, "importance")) return;
  for (const auto& [input, entry] : json_object(json, "importance", where).items()) {
    const std::string place = where + ": importance: " + quote(input);
    check_members(entry, {"channels", "residual"}, place);
    InputImportance& importance = plan.importance[input];
    importance.channels = parse_importance(entry, "channels", place);
    if (json_find(entry, "residual")) importance.residual = parse_importance(entry, "residual", place);
  }
}

PlannedInput parse_input(const std::string& name, const Json& json, const std::string& where) {
  check_members(json,
                {"method", "channels", "residual", "residual_scale", "hadamard", "outliers", "global_scale",
                 "residual_global_scale", "order", "ranking", "scale", "folded_into"},
                where);
  PlannedInput input;
  input.name = name;
  InputInfo& info = input.transform.info;
  // What the columns follow from is checked here, the rest where checkpoints are read.
  info.channels = json_int64(json, "channels", where);
  const std::int64_t residual = json_optional_int64(json, "residual", where).value_or(0);
  if (info.channels < 1 || residual < 0 || residual > info.channels)
    fail_input("{}: {} residual channels of {}, which cannot be", where, residual, info.channels);
  Json complete = json;
  complete["width"] = info.channels + residual;
  complete["gathered"] = residual > 0;
  info = parse_input_info(complete, where);
  info.width = info.channels;
  info.gathered = false;
  if (json_find(json, "scale")) {
    input.transform.scale = numbers<float>(json, "scale", info.channels, where);
    info.scaled = true;
    for (const float scale : input.transform.scale)
      if (!(scale > 0) || std::isinf(scale))
        fail_input("{}: scale holds {}, expected positive numbers", where, scale);
  }
  if (json_find(json, "ranking")) {
    input.ranking = numbers<std::int32_t>(json, "ranking", info.channels, where);
    std::vector<char> seen(input.ranking.size());
    for (const std::int32_t channel : input.ranking) {
      if (channel < 0 || channel >= info.channels || seen[static_cast<std::size_t>(channel)]++)
        fail_input("{}: ranking names channel {}, which is none of {} or is there twice", where, channel,
                   info.channels);
    }
    const std::string order = json_string(json, "order", where);
    const auto found = find_column_order(order);
    if (!found)
      fail_input("{}: order is {}, expected \"natural\", \"absmax\" or \"rising\"", where, quote(order));
    input.order = *found;
  } else if (info.residual || info.outliers) {
    fail_input("{}: has residual or outlier channels, but no ranking says which", where);
  }
  input.folded_into = json_optional_string(json, "folded_into", where).value_or("");
  if (!input.folded_into.empty() && !info.scaled) fail_input("{}: folds a scale that is not there", where);
  return input;
}

PlannedTensor parse_tensor(const std::string& name, const Json& json, const QuantizePlan& plan,
                           const std::string& where) {
  check_members(json, {"kept", "weights", "activations", "input", "scale_group"}, where);
  PlannedTensor tensor;
  tensor.name = name;
  if (const auto kept = json_optional_string(json, "kept", where)) {
    tensor.reason = *kept;
    return tensor;
  }
  tensor.spec = parse_quant_spec(json_object(json, "weights", where), where + ": weights");
  if (tensor.spec->format == Format::bf16) {
    tensor.spec.reset();
    tensor.reason = "format bf16";
    return tensor;
  }
  tensor.activations = plan.activations;
  if (json.contains("activations")) {
    tensor.activations.reset();
    if (const Json* activations = json_find(json, "activations"))
      tensor.activations = parse_activation_spec(*activations, where + ": activations");
  }
  tensor.input = json_optional_string(json, "input", where).value_or("");
  tensor.scale_group = json_optional_string(json, "scale_group", where).value_or("");
  return tensor;
}

// Everything that concerns several entries at once, or the model.
void check_together(const QuantizePlan& plan, const Checkpoint& checkpoint,
                    std::span<const LinearSource> linears, const std::string& file) {
  std::map<std::string, const PlannedInput*> inputs;
  std::map<std::string, const PlannedTensor*> scale_groups;
  for (const PlannedInput& input : plan.inputs) inputs.emplace(input.name, &input);
  for (const PlannedTensor& tensor : plan.tensors) {
    if (!tensor.spec) continue;
    const std::string where = file + ": tensors: " + quote(tensor.name);
    const auto linear = std::ranges::find_if(
        linears, [&](const LinearSource& source) { return source.name + ".weight" == tensor.name; });
    if (linear == linears.end())
      fail_input("{}: is no linear layer of this model and cannot be quantized", where);
    if (!tensor.scale_group.empty()) {
      const PlannedTensor& first = *scale_groups.emplace(tensor.scale_group, &tensor).first->second;
      if (*first.spec != *tensor.spec || tensor.spec->format != Format::nvfp4)
        fail_input("{}: shares its global scale with {}, which has another format", where, first.name);
    }
    const bool fixed = tensor.activations && tensor.activations->scope == ActivationScope::fixed &&
                       tensor.activations->spec.format == Format::nvfp4;
    if (tensor.input.empty()) {
      if (fixed) fail_input("{}: activations are static, but no input gives their scale", where);
      continue;
    }
    const auto input = inputs.find(tensor.input);
    if (input == inputs.end()) fail_input("{}: input {} is not planned", where, quote(tensor.input));
    if (linear->input != tensor.input)
      fail_input("{}: reads {}, not {}", where, quote(linear->input), quote(tensor.input));
    const InputInfo& info = input->second->transform.info;
    if ((info.residual || info.outliers) && !has_row_blocks(tensor.spec->format))
      fail_input("{}: {} has blocks over row ends, so residual or outlier columns cannot be stored", where,
                 to_string(*tensor.spec));
    if (checkpoint.shape(tensor.name).back() != info.channels)
      fail_input("{}: has {} columns, but its input {} channels", where, checkpoint.shape(tensor.name).back(),
                 info.channels);
    if (info.residual && !tensor.activations)
      fail_input("{}: its input has residual channels, but activations are not rounded", where);
    if (fixed && info.global_scale == 0.0f)
      fail_input("{}: activations are static, but its input has no global_scale", where);
  }
}

// A scale that a producer takes in changes what every reader sees, and is one factor for each of its rows.
void check_fold(const QuantizePlan& plan, const PlannedInput& input, std::span<const LinearSource> linears,
                const Producers& producers, const std::string& file) {
  if (input.folded_into.empty()) return;
  const std::string where = file + ": inputs: " + quote(input.name);
  const auto producer = producers.find(input.name);
  if (producer == producers.end() || producer->second.tensor != input.folded_into)
    fail_input("{}: folds its scale into {}, which does not compute it", where, quote(input.folded_into));
  for (const LinearSource& linear : linears) {
    if (linear.input != input.name) continue;
    const auto tensor = std::ranges::find(plan.tensors, linear.name + ".weight", &PlannedTensor::name);
    if (tensor == plan.tensors.end()) continue;  // a head that is the embedding
    if (!tensor->spec || tensor->input != input.name)
      fail_input("{}: is divided in {}, so {} must be quantized and name it as its input", where,
                 quote(input.folded_into), quote(tensor->name));
  }
  std::map<std::int32_t, float> scales;
  for (std::size_t k = 0; k < input.transform.scale.size(); ++k) {
    const float scale = input.transform.scale[k];
    if (scales.emplace(producer->second.rows[k], scale).first->second != scale)
      fail_input(
          "{}: scale of channel {} is {}, expected that of the other channels which come from row {} of {}",
          where, k, scale, producer->second.rows[k], quote(input.folded_into));
  }
}

}  // namespace

std::string plan_text(const QuantizePlan& plan, const PlanOrigin& origin) {
  Json json = {{"halfbyte_plan", kVersion},
               {"model", origin.model},
               {"stats", origin.stats.empty() ? Json(nullptr) : Json(origin.stats)},
               {"calibration_texts", origin.calibration_texts},
               {"method", plan.method},
               {"options", plan.options},
               {"activations", plan.activations ? to_json(*plan.activations) : Json(nullptr)},
               {"rounding", rounding_to_json(plan)},
               {"inputs", Json::object()}};
  for (const PlannedInput& input : plan.inputs) json["inputs"][input.name] = input_to_json(input);
  for (const PlannedTensor& tensor : plan.tensors) {
    Json& entry = json["tensors"][tensor.name];
    if (!tensor.spec) {
      entry["kept"] = tensor.reason;
      continue;
    }
    entry["weights"] = to_json(*tensor.spec);
    if (tensor.activations != plan.activations)
      entry["activations"] = tensor.activations ? to_json(*tensor.activations) : Json(nullptr);
    if (!tensor.input.empty()) entry["input"] = tensor.input;
    if (!tensor.scale_group.empty()) entry["scale_group"] = tensor.scale_group;
  }
  return dump_json(json);
}

PlanFile parse_plan(const Json& json, const std::string& file, const Checkpoint& checkpoint,
                    std::span<const LinearSource> linears, const Producers& producers) {
  check_members(json,
                {"halfbyte_plan", "model", "stats", "calibration_texts", "method", "options", "activations",
                 "rounding", "inputs", "tensors"},
                file);
  if (json_int64(json, "halfbyte_plan", file) != kVersion)
    fail(ErrorKind::unsupported, "{}: is a plan of version {}, this build reads {}", file,
         json["halfbyte_plan"].dump(), kVersion);
  PlanFile result;
  QuantizePlan& plan = result.plan;
  result.origin.model = json_string(json, "model", file);
  result.origin.stats = json_optional_string(json, "stats", file).value_or("");
  result.origin.calibration_texts = strings(json, "calibration_texts", file);
  plan.method = json_string(json, "method", file);
  for (const auto& [key, value] : json_object(json, "options", file).items()) {
    if (!value.is_string()) fail_input("{}: options: {} must be a string", file, quote(key));
    plan.options[key] = value.get<std::string>();
  }
  if (const Json* activations = json_find(json, "activations"))
    plan.activations = parse_activation_spec(*activations, file + ": activations");
  if (const Json* rounding = json_find(json, "rounding"))
    parse_rounding(*rounding, plan, file + ": rounding");
  for (const auto& [name, input] : json_object(json, "inputs", file).items())
    plan.inputs.push_back(parse_input(name, input, file + ": inputs: " + quote(name)));

  const Json& tensors = json_object(json, "tensors", file);
  for (const std::string& name : checkpoint.names()) {
    const std::string where = file + ": tensors: " + quote(name);
    const Json* entry = json_find(tensors, name);
    if (!entry) fail_input("{}: is missing, the model has it", where);
    plan.tensors.push_back(parse_tensor(name, *entry, plan, where));
  }
  if (tensors.size() != plan.tensors.size())
    for (const auto& [name, entry] : tensors.items())
      if (!checkpoint.has(name)) fail_input("{}: tensors: the model has no {}", file, quote(name));
  check_together(plan, checkpoint, linears, file);
  for (const PlannedInput& input : plan.inputs) check_fold(plan, input, linears, producers, file);

  for (PlannedInput& input : plan.inputs) {
    InputGroup group{.input = input.name, .channels = input.transform.info.channels, .tensors = {}};
    for (PlannedTensor& tensor : plan.tensors)
      if (tensor.input == input.name) group.tensors.push_back(&tensor);
    const std::string where = file + ": inputs: " + quote(input.name);
    if (group.tensors.empty()) fail_input("{}: no quantized tensor reads it", where);
    if (input.ranking.empty()) continue;
    const std::int64_t block = common_block(group);
    const InputInfo& info = input.transform.info;
    if (info.residual % block)
      fail_input("{}: residual is {}, expected a multiple of {}, the block of its formats", where,
                 info.residual, block);
    set_columns(input, info.outliers ? 1 : block);
  }
  return result;
}

}  // namespace halfbyte
