// What tensors and activations are quantized to, as JSON: the same members in config.json and in plans.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "formats/formats.h"
#include "io/json.h"

namespace halfbyte {

// Which elements of an activation [M, K] share a global scale (nvfp4) at run time: all of them, those of a row, or all there
// ever are (a scale taken from calibration; what exceeds its range saturates).
enum class ActivationScope : std::uint8_t { tensor, token, fixed };

struct ActivationSpec {
  QuantSpec spec;
  ActivationScope scope = ActivationScope::tensor;
  friend bool operator==(const ActivationSpec&, const ActivationSpec&) = default;
};

// "tensor", "token", "static".
std::string_view scope_name(ActivationScope scope);
std::optional<ActivationScope> find_scope(std::string_view name);

// Members "format", "block_size" and, where they apply, "double_quant", "global_scale", "mx_scale", "four_six", "scale_search"; of
// activations also "scope". Parsing validates and names the place `where`.
Json to_json(const QuantSpec& spec);
QuantSpec parse_quant_spec(const Json& json, const std::string& where);
Json to_json(const ActivationSpec& activations);
// Activations must have a format with blocks along a row.
ActivationSpec parse_activation_spec(const Json& json, const std::string& where);

// "nvfp4 pow2 per tensor".
std::string to_string(const ActivationSpec& activations);

}  // namespace halfbyte
