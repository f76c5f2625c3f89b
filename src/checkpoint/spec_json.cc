#include "checkpoint/spec_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::array<std::string_view, 3> kScopes{"tensor", "token", "static"};

}  // namespace

std::string_view scope_name(ActivationScope scope) { return kScopes[static_cast<std::size_t>(scope)]; }

std::optional<ActivationScope> find_scope(std::string_view name) {
  const auto found = std::ranges::find(kScopes, name);
  if (found == kScopes.end()) return std::nullopt;
  return static_cast<ActivationScope>(found - kScopes.begin());
}

Json to_json(const QuantSpec& spec) {
  const FormatInfo& info = format_info(spec.format);
  Json json = {{"format", info.name}};
  if (info.default_block != 0) json["block_size"] = effective_block(spec, 0);
  if (spec.double_quant) json["double_quant"] = true;
  if (info.scale == ScaleKind::e4m3_and_global)
    json["global_scale"] = global_scale_rule_name(spec.global_scale);
  if (info.scale == ScaleKind::e8m0) json["mx_scale"] = mx_scale_rule_name(spec.mx_scale);
  if (spec.four_six) json["four_six"] = true;
  if (spec.scale_search) json["scale_search"] = true;
  return json;
}

QuantSpec parse_quant_spec(const Json& json, const std::string& where) {
  QuantSpec spec;
  const std::string format = json_string(json, "format", where);
  spec.block_size = json_optional_int64(json, "block_size", where).value_or(0);
  spec.double_quant = json_optional_bool(json, "double_quant", where).value_or(false);
  spec.four_six = json_optional_bool(json, "four_six", where).value_or(false);
  spec.scale_search = json_optional_bool(json, "scale_search", where).value_or(false);
  const auto global_scale = json_optional_string(json, "global_scale", where);
  const auto mx_scale = json_optional_string(json, "mx_scale", where);
  try {
    spec.format = format_from_name(format);
    if (global_scale) spec.global_scale = global_scale_rule_from_name(*global_scale);
    if (mx_scale) spec.mx_scale = mx_scale_rule_from_name(*mx_scale);
    validate(spec);
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", where, error.what());
  }
  return spec;
}

Json to_json(const ActivationSpec& activations) {
  Json json = to_json(activations.spec);
  json["scope"] = scope_name(activations.scope);
  return json;
}

ActivationSpec parse_activation_spec(const Json& json, const std::string& where) {
  ActivationSpec activations{.spec = parse_quant_spec(json, where)};
  if (!has_row_blocks(activations.spec.format))
    fail_input("{}: activations cannot be {}; possible are nvfp4, mxfp4, mxfp8, int4 and int8", where,
               to_string(activations.spec));
  const std::string scope = json_string(json, "scope", where);
  const auto found = find_scope(scope);
  if (!found)
    fail_input("{}: scope is {}, expected \"tensor\", \"token\" or \"static\"", where, quote(scope));
  activations.scope = *found;
  return activations;
}

std::string to_string(const ActivationSpec& activations) {
  const bool global = format_info(activations.spec.format).scale == ScaleKind::e4m3_and_global;
  std::string text = to_string(activations.spec);
  if (!global) return text;
  switch (activations.scope) {
    case ActivationScope::tensor:
      return text + " per tensor";
    case ActivationScope::token:
      return text + " per token";
    case ActivationScope::fixed:
      break;
  }
  return text + " static";
}

}  // namespace halfbyte
