// Names of formats and rules, and the check that a QuantSpec makes sense.
#include "formats/formats.h"

#include <fmt/format.h>

#include "core/fail.h"

namespace halfbyte {

namespace {

constexpr std::array<std::string_view, 4> kGlobalScaleRules{"pow2", "amax", "compressed-tensors", "modelopt"};
constexpr std::array<std::string_view, 6> kMxScaleRules{
    "floor", "ceil", "rceil", "even", "compressed-tensors", "modelopt"};

// Place of a name in a list; underscores count as hyphens.
std::size_t find_name(std::string_view what, std::span<const std::string_view> names, std::string_view name) {
  std::string wanted(name);
  for (char& c : wanted)
    if (c == '_') c = '-';
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == wanted) return i;
  fail_input("unknown {} \"{}\"; known are {}", what, name, fmt::join(names, ", "));
}

}  // namespace

Format format_from_name(std::string_view name) {
  if (const auto format = find_format(name)) return *format;
  std::string known;
  for (const FormatInfo& row : kFormats) known += fmt::format("{}, ", row.name);
  fail_input("unknown format \"{}\"; known are {}mxfp8 (= mxfp8_e4m3)", name, known);
}

std::string_view global_scale_rule_name(GlobalScaleRule rule) {
  return kGlobalScaleRules[static_cast<std::size_t>(rule)];
}

GlobalScaleRule global_scale_rule_from_name(std::string_view name) {
  return static_cast<GlobalScaleRule>(find_name("global scale rule", kGlobalScaleRules, name));
}

std::string_view mx_scale_rule_name(MxScaleRule rule) {
  return kMxScaleRules[static_cast<std::size_t>(rule)];
}

MxScaleRule mx_scale_rule_from_name(std::string_view name) {
  return static_cast<MxScaleRule>(find_name("MX scale rule", kMxScaleRules, name));
}

void validate(const QuantSpec& spec) {
  if (static_cast<std::size_t>(spec.format) >= kFormats.size())
    fail_input("format number {} does not exist", static_cast<int>(spec.format));
  const FormatInfo& info = format_info(spec.format);
  if (spec.block_size != 0) {
    if (info.default_block == 0)
      fail_input("{} takes no block size (got {}); {}", info.name, spec.block_size,
                 info.axis == BlockAxis::whole_row ? "it has one scale a row" : "it has no scales");
    const bool power_of_two = spec.block_size > 0 && (spec.block_size & (spec.block_size - 1)) == 0;
    if (!power_of_two || spec.block_size < info.smallest_block || spec.block_size > info.largest_block) {
      if (info.smallest_block == info.largest_block)
        fail_input("{} has blocks of {}, not of {}", info.name, info.default_block, spec.block_size);
      fail_input("{} takes a block size that is a power of two from {} to {}, not {}", info.name,
                 info.smallest_block, info.largest_block, spec.block_size);
    }
  }
  if (spec.double_quant && info.scale != ScaleKind::absmax_f32)
    fail_input("double quantization belongs to nf4 and fp4, not to {}", info.name);
  if ((spec.four_six || spec.scale_search) &&
      (spec.format != Format::nvfp4 || !nvfp4_keeps_negative_zero(spec.global_scale)))
    fail_input("{} block scales belong to nvfp4 with the global scale rule pow2 or amax, not to {}",
               spec.four_six ? "4/6" : "searched",
               to_string(QuantSpec{.format = spec.format, .global_scale = spec.global_scale}));
  if (spec.four_six && spec.scale_search)
    fail_input("block scales are either 4/6 or searched, not both; the search includes 4/6's second scale");
  if (spec.mx_scale == MxScaleRule::modelopt && info.scale == ScaleKind::e8m0 && spec.format != Format::mxfp4)
    fail_input(
        "the MX scale rule modelopt is defined for mxfp4 only, not for {}; use floor or compressed-tensors",
        info.name);
}

std::string to_string(const QuantSpec& spec) {
  const FormatInfo& info = format_info(spec.format);
  std::string text(info.name);
  if (info.smallest_block != info.largest_block)
    text += fmt::format(" block {}", spec.block_size ? spec.block_size : info.default_block);
  if (spec.format == Format::nvfp4) text += fmt::format(" {}", global_scale_rule_name(spec.global_scale));
  if (info.scale == ScaleKind::e8m0) text += fmt::format(" {}", mx_scale_rule_name(spec.mx_scale));
  if (spec.double_quant) text += " double_quant";
  if (spec.four_six) text += " four_six";
  if (spec.scale_search) text += " scale_search";
  return text;
}

}  // namespace halfbyte
