// The list of number formats, and what a tensor is quantized to: format, block size, rules for its scales.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/shape.h"
#include "formats/mx.h"
#include "formats/nvfp4.h"

namespace halfbyte {

enum class Format : std::uint8_t { nf4, fp4, nvfp4, mxfp4, mxfp8_e4m3, mxfp8_e5m2, int4, int8, bf16 };

// Which values share a scale.
enum class BlockAxis : std::uint8_t {
  flat,  // consecutive elements of the flattened tensor, over row ends; the last block may be short
  row,   // consecutive elements of one row; the last block of every row may be short
  whole_row,
  none,
};

enum class ScaleKind : std::uint8_t { absmax_f32, e4m3_and_global, e8m0, f32, none };

struct FormatInfo {
  Format format;
  std::string_view name;
  int bits;                                    // per code
  std::int64_t default_block;                  // elements; 0 where there are no blocks of a fixed size
  std::int64_t smallest_block, largest_block;  // allowed: the powers of two between them
  BlockAxis axis;
  ScaleKind scale;
};

inline constexpr std::array<FormatInfo, 9> kFormats{{
    {Format::nf4, "nf4", 4, 64, 32, 4096, BlockAxis::flat, ScaleKind::absmax_f32},
    {Format::fp4, "fp4", 4, 64, 32, 4096, BlockAxis::flat, ScaleKind::absmax_f32},
    {Format::nvfp4, "nvfp4", 4, 16, 16, 16, BlockAxis::row, ScaleKind::e4m3_and_global},
    {Format::mxfp4, "mxfp4", 4, 32, 32, 32, BlockAxis::row, ScaleKind::e8m0},
    {Format::mxfp8_e4m3, "mxfp8_e4m3", 8, 32, 32, 32, BlockAxis::row, ScaleKind::e8m0},
    {Format::mxfp8_e5m2, "mxfp8_e5m2", 8, 32, 32, 32, BlockAxis::row, ScaleKind::e8m0},
    {Format::int4, "int4", 4, 64, 32, 128, BlockAxis::row, ScaleKind::f32},
    {Format::int8, "int8", 8, 0, 0, 0, BlockAxis::whole_row, ScaleKind::f32},
    {Format::bf16, "bf16", 16, 0, 0, 0, BlockAxis::none, ScaleKind::none},
}};

constexpr const FormatInfo& format_info(Format format) { return kFormats[static_cast<std::size_t>(format)]; }
constexpr std::string_view format_name(Format format) { return format_info(format).name; }

// Whether blocks stay within a row: only then can activations have the format, and columns be split off or appended.
constexpr bool has_row_blocks(Format format) {
  const BlockAxis axis = format_info(format).axis;
  return axis == BlockAxis::row || axis == BlockAxis::whole_row;
}

// The format of that name ("mxfp8" is mxfp8_e4m3), or nothing where the name is unknown.
constexpr std::optional<Format> find_format(std::string_view name) {
  if (name == "mxfp8") return Format::mxfp8_e4m3;
  for (const FormatInfo& row : kFormats)
    if (row.name == name) return row.format;
  return std::nullopt;
}

// The same for user input: an unknown name is an error that lists the known ones. So are the rules below.
Format format_from_name(std::string_view name);

// "pow2", "amax", "compressed-tensors", "modelopt"; reading takes underscores too.
std::string_view global_scale_rule_name(GlobalScaleRule rule);
GlobalScaleRule global_scale_rule_from_name(std::string_view name);

// "floor", "ceil", "rceil", "even", "compressed-tensors", "modelopt"; the same.
std::string_view mx_scale_rule_name(MxScaleRule rule);
MxScaleRule mx_scale_rule_from_name(std::string_view name);

struct QuantSpec {
  Format format = Format::nvfp4;
  std::int64_t block_size = 0;                           // 0: the format's default
  bool double_quant = false;                             // nf4, fp4: absmax in 8 bits (dynamic8.h)
  GlobalScaleRule global_scale = GlobalScaleRule::pow2;  // nvfp4
  MxScaleRule mx_scale = MxScaleRule::floor;             // mxfp4, mxfp8
  bool four_six = false;                                 // nvfp4, rules pow2 and amax: 4/6 block scales
  bool scale_search = false;                             // the same: the best of nine block scales

  friend bool operator==(const QuantSpec&, const QuantSpec&) = default;
};

// Elements that share a scale in a row of `columns` elements: the block size, the row for int8, 0 for bf16.
constexpr std::int64_t effective_block(const QuantSpec& spec, std::int64_t columns) {
  const FormatInfo& info = format_info(spec.format);
  if (info.axis == BlockAxis::whole_row) return columns;
  return spec.block_size ? spec.block_size : info.default_block;
}

// Throws bad_input where the options do not fit the format, naming both and what is allowed.
void validate(const QuantSpec& spec);

// "nf4 block 64 double_quant", "nvfp4 pow2 four_six": the spec in words, defaults left out except the rules.
std::string to_string(const QuantSpec& spec);

static_assert(
    [] {
      for (std::size_t i = 0; i < kFormats.size(); ++i)
        if (static_cast<std::size_t>(kFormats[i].format) != i) return false;
      return true;
    }(),
    "kFormats must list the formats in the order of the enum");

}  // namespace halfbyte
