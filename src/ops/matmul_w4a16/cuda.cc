// Checks the arguments of a CUDA product with 4-bit weights and chooses its launches; cuda.cu launches, the kernels compute.
#include "ops/matmul_w4a16/cuda.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "core/fail.h"
#include "formats/bf16.h"
#include "formats/dynamic8.h"
#include "formats/e2m1.h"
#include "formats/fp16.h"
#include "formats/fp4.h"
#include "formats/int4.h"
#include "formats/nf4.h"
#include "ops/dequantize/config.h"
#include "ops/matmul_w4a16/launch.h"
#include "ops/matmul_w4a16/op.h"

namespace halfbyte::cuda {

namespace {

void require(std::string_view what, std::string_view part, const void* pointer, std::uintptr_t alignment) {
  if (!pointer) fail_input("CUDA {}: {} is null", what, part);
  const auto excess = reinterpret_cast<std::uintptr_t>(pointer) % alignment;
  if (excess)
    fail_input("CUDA {}: {} lies {} bytes past a multiple of {}; copy it to an aligned buffer first", what,
               part, excess, alignment);
}

const DeviceInfo& device() {
  static const DeviceInfo info = device_info().value_or(
      DeviceInfo{.name = "none: as if on an H200", .major = 9, .multiprocessors = 132});
  return info;
}

// The wide kernel is written in instructions that only Hopper has.
bool takes_wide(std::int64_t m) { return m > kSmallMRows && device().major == 9; }

float level_of(Format format, std::uint8_t code) {
  switch (format) {
    case Format::nf4:
      return nf4_decode(code);
    case Format::fp4:
      return fp4_decode(code);
    case Format::int4:
      return static_cast<float>(int4_level(code));
    default:
      return e2m1_decode(code);
  }
}

W4Scales scales_of(const QuantSpec& spec, const W4Layout& layout) {
  if (spec.format == Format::nvfp4) return W4Scales::e4m3_sixteens;
  if (spec.format == Format::mxfp4) return W4Scales::e8m0_halves;
  const bool halves = layout.scales_per_row == 2;
  if (spec.double_quant)
    return halves                      ? W4Scales::nested_halves
           : layout.columns % 256 == 0 ? W4Scales::nested_rows
                                       : W4Scales::nested;
  return halves ? W4Scales::f32_halves : W4Scales::f32;
}

void check(const MatmulW4A16Call& call) {
  const W4Weights& weights = call.weights;
  check_w4a16_weights(weights.spec, weights.rows, weights.columns);
  if (call.dtype != DType::bf16 && call.dtype != DType::f16)
    fail_input("CUDA matmul_w4a16: activations of {}, expected BF16 or F16", dtype_name(call.dtype));
  if (weights.rows > std::int64_t{1} << 30 || weights.columns > std::int64_t{1} << 30 ||
      weights.rows * weights.columns > std::int64_t{1} << 36)
    fail_input("CUDA matmul_w4a16: weights of {} x {}, expected at most 2^36 in all", weights.rows,
               weights.columns);
  require("matmul_w4a16", "tiles", weights.tiles, 16);
  require("matmul_w4a16", "activations", call.activations, 16);
  require("matmul_w4a16", "out", call.out, 16);
  if (call.bias) require("matmul_w4a16", "bias", call.bias, 2);
  require("matmul_w4a16", "workspace", call.workspace, 256);
  if (weights.spec.format == Format::nvfp4) require("matmul_w4a16", "global_scale", weights.global_scale, 4);
  if (weights.spec.double_quant) {
    require("matmul_w4a16", "nested_absmax", weights.nested_absmax, 4);
    require("matmul_w4a16", "map", weights.map, 4);
  }
}

W4Params w4_params(const MatmulW4A16Call& call, const W4Layout& layout) {
  const W4Weights& weights = call.weights;
  W4Params params;
  params.tiles = weights.tiles;
  params.bias = call.bias;
  params.rows = static_cast<int>(weights.rows);
  params.columns = static_cast<int>(weights.columns);
  params.row_tiles = static_cast<int>(layout.row_tiles);
  params.column_tiles = static_cast<int>(layout.column_tiles);
  params.global_scale = weights.spec.format == Format::nvfp4 ? weights.global_scale : nullptr;
  params.global_divides = weights.spec.global_scale == GlobalScaleRule::compressed_tensors;
  if (weights.spec.double_quant) {
    params.nested = weights.nested_absmax;
    params.map = weights.map;
    params.offset = weights.offset;
    const std::int64_t blocks = weights.rows * weights.columns / layout.block;
    params.last_group = static_cast<unsigned>(ceil_div(blocks, kDynamic8Group) - 1);
    params.group_shift = log2_of(layout.block / 32 * kDynamic8Group);
  }
  // The exponent that an E4M3 scale lacks where its bits are put into a 16-bit float as they are; see kernel_w4.cuh.
  const float lift = weights.spec.format != Format::nvfp4 ? 1.0f
                     : call.dtype == DType::bf16          ? pow2f(120)
                                                          : pow2f(8);
  for (std::uint8_t code = 0; code < 16; ++code) {
    const float level = level_of(weights.spec.format, code);
    params.exact_levels[code] = level;
    params.levels[code] = call.dtype == DType::bf16 ? bf16_encode(level * lift) : fp16_encode(level * lift);
  }
  params.high_first = weights.spec.format == Format::nf4 || weights.spec.format == Format::fp4;
  return params;
}

void multiply_few(const MatmulW4A16Call& call, const W4Layout& layout, Stream stream) {
  SmallMParams params;
  static_cast<W4Params&>(params) = w4_params(call, layout);
  params.shape = small_m_shape(layout.row_tiles, layout.column_tiles, device().multiprocessors);
  params.counters = static_cast<unsigned*>(call.workspace);
  params.partial = static_cast<float*>(call.workspace) + kWorkspaceCounters;
  for (std::int64_t first = 0; first < call.m; first += kSmallMRows) {
    params.m = static_cast<int>(call.m - first < kSmallMRows ? call.m - first : kSmallMRows);
    params.activations = static_cast<const std::uint16_t*>(call.activations) + first * call.weights.columns;
    params.out = static_cast<std::uint16_t*>(call.out) + first * call.weights.rows;
    check_status(launch_small_m(params, scales_of(call.weights.spec, layout), call.dtype, stream),
                 "launching matmul_w4a16");
  }
}

void multiply_many(const MatmulW4A16Call& call, const W4Layout& layout, Stream stream) {
  WideParams params;
  static_cast<W4Params&>(params) = w4_params(call, layout);
  params.shape = wide_shape(call.m, layout.row_tiles, layout.column_tiles, device().multiprocessors);
  params.m = call.m;
  params.m_padded = std::int64_t{params.shape.m_blocks} * params.shape.activations;
  params.activations = call.activations;
  params.out = call.out;
  params.counters = static_cast<unsigned*>(call.workspace);
  params.partial = static_cast<float*>(call.workspace) + kWorkspaceCounters;
  params.arranged = params.partial + wide_partial(params.shape, call.m, call.weights.rows);
  check_status(launch_wide(params, scales_of(call.weights.spec, layout), call.dtype, stream),
               "launching matmul_w4a16");
}

}  // namespace

std::string to_string(const SmallMShape& shape) {
  return fmt::format("small_m: {} splits x {} groups of {} x {} warps, {} rows of tiles each", shape.splits,
                     shape.groups, shape.warps_k, shape.warps_rows, shape.row_tiles);
}

std::string to_string(const WideShape& shape) {
  return fmt::format("wide: {} rows x {} activations, {} x {} blocks x {} splits of {} tiles", kWideRows,
                     shape.activations, shape.row_blocks, shape.m_blocks, shape.splits, shape.column_tiles);
}

void pack_w4(const QuantSpec& spec, std::int64_t rows, std::int64_t columns, const std::uint8_t* codes,
             const std::uint8_t* scales8, const float* scales, std::uint8_t* tiles, Stream stream) {
  check_w4a16_weights(spec, rows, columns);
  const PackW4Params params{.layout = W4Layout::of(spec, rows, columns),
                            .codes = codes,
                            .scales8 = scales8,
                            .scales = scales,
                            .tiles = tiles};
  require("pack_w4", "codes", codes, 1);
  if (params.layout.scale_bytes == 1)
    require("pack_w4", "scales8", scales8, 1);
  else
    require("pack_w4", "scales", scales, 4);
  require("pack_w4", "tiles", tiles, 16);
  require_device("pack_w4");
  check_status(launch_pack_w4(params, stream), "launching pack_w4");
}

std::int64_t matmul_w4a16_workspace(std::int64_t m, std::int64_t rows, std::int64_t columns) {
  const std::int64_t row_tiles = ceil_div(rows, kTileRows), column_tiles = ceil_div(columns, kTileColumns);
  const std::int64_t few =
      small_m_workspace(small_m_shape(row_tiles, column_tiles, device().multiprocessors), rows);
  if (!takes_wide(m)) return few;
  // A call with fewer activations may need more of it: more splits.
  std::int64_t most = few;
  for (const std::int64_t smaller :
       {std::int64_t{32}, std::int64_t{64}, std::int64_t{128}, std::int64_t{256}, m})
    if (smaller <= m)
      most = std::max(most,
                      wide_workspace(wide_shape(smaller, row_tiles, column_tiles, device().multiprocessors),
                                     smaller, rows, column_tiles));
  return most;
}

void matmul_w4a16(const MatmulW4A16Call& call, Stream stream) {
  if (call.m < 0) fail_input("CUDA matmul_w4a16: {} rows of activations", call.m);
  if (call.m == 0) return;
  check(call);
  require_device("matmul_w4a16");
  const W4Layout layout = W4Layout::of(call.weights.spec, call.weights.rows, call.weights.columns);
  takes_wide(call.m) ? multiply_many(call, layout, stream) : multiply_few(call, layout, stream);
}

}  // namespace halfbyte::cuda
