// What lies between two linears with 4-bit activations, as one op: the residual stream's addition and RMSNorm, or SiLU(gate) *
// up, or nothing; a new order of channels; rounding to NVFP4 or MXFP4; rounding of what that lost of chosen channels (ARCQuant).
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/thread_pool.h"
#include "formats/formats.h"
#include "formats/hd.h"
#include "ops/fake_quantize/op.h"

namespace halfbyte {

enum class ActivationForm : std::uint8_t {
  plain,     // h = x (what o_proj reads)
  norm,      // t = residual + x, rounded to `dtype`; h = RMSNorm(t) (q, k, v; gate, up)
  silu_mul,  // h = SiLU(x) * up, x being the gate (down_proj)
};

// Where the blocks of residual channels lie among those of the width W = K or that of `order`.
enum class ResidualLayout : std::uint8_t {
  appended,  // after all of them
  interleaved,  // residual block i after main block (W - S) / block + i: the published kernels' order, where the last S main
  // channels have residuals
};

enum class ScaleLayout : std::uint8_t {
  rows,         // [M, (W + S) / block]
  tiles_128x4,  // formats/swizzle.h, [swizzled_bytes(M, (W + S) / block)], padding cleared
};

// h [M, K] in float32, gathered to g [M, W]; q = dequantize(quantize(g)), r = (g - q)[:, chosen]; the codes and scales of
// quantize(g) and quantize(r). Each step is the op of that name on float32 (rms_norm, transform_input, quantize), bit for bit.
// The global scale of nvfp4 is g's for both, as in augment() with shared_scale. One pass over a row cannot know the largest
// magnitude of the tensor, so it is given (from calibration), or every row has its own.
struct FusedActivation {
  std::int64_t rows = 0, columns = 0;  // M, K
  DType dtype = DType::bf16;           // of x, up and the residual stream: bf16, f16 or f32
  ActivationForm form = ActivationForm::plain;
  const void* x = nullptr;  // [M, K], row stride x_stride elements
  std::int64_t x_stride = 0;
  const void* up = nullptr;  // silu_mul: [M, K], row stride up_stride
  std::int64_t up_stride = 0;
  const void* residual = nullptr;     // norm: [M, K], contiguous; null: nothing is added, t = x
  void* residual_out = nullptr;       // norm: t, [M, K], contiguous; may be residual or null
  const void* norm_weight = nullptr;  // norm: [K]
  DType norm_dtype = DType::f32;      // of the weights: f32 or bf16
  float eps = 0;

  const std::int32_t* order =
      nullptr;             // [W], column j of g is column order[j] of h, or zeros for -1; null: g = h
  std::int64_t width = 0;  // W, a multiple of the block; 0: K
  const std::int32_t* chosen = nullptr;  // [S], columns of g that have residuals
  std::int64_t chosen_count = 0;         // S, a multiple of the block

  QuantSpec spec;  // nvfp4 or mxfp4
  ScaleScope scope = ScaleScope::tensor;
  const float* global_scale = nullptr;  // nvfp4, scope tensor: [1], positive, in the convention of its rule
  ResidualLayout layout = ResidualLayout::appended;
  ScaleLayout scale_layout = ScaleLayout::rows;

  std::uint8_t* codes = nullptr;   // [M, (W + S) / 2], low nibble first
  std::uint8_t* scales = nullptr;  // one a block
  float* row_scales = nullptr;     // nvfp4, scope row: [M]
  int* not_finite = nullptr;       // [1], becomes 1 where g holds a NaN or an infinity; may be null
};

HB_HD constexpr std::int64_t activation_width(const FusedActivation& args) {
  return args.width ? args.width : args.columns;
}

// Throws bad_input for arguments that make no sense. Pointers are only asked whether they are there.
void check_fused_activation(const FusedActivation& args);

// The position, counted in blocks along a row, of block `block` of g and of block `block` of the residuals.
HB_HD constexpr std::int64_t main_block_position(const FusedActivation& args, std::int64_t block,
                                                 std::int64_t block_size) {
  const std::int64_t plain = (activation_width(args) - args.chosen_count) / block_size;
  return args.layout == ResidualLayout::appended || block < plain ? block : 2 * block - plain;
}
HB_HD constexpr std::int64_t residual_block_position(const FusedActivation& args, std::int64_t block,
                                                     std::int64_t block_size) {
  const std::int64_t width = activation_width(args) / block_size, chosen = args.chosen_count / block_size;
  return args.layout == ResidualLayout::appended ? width + block : width - chosen + 2 * block + 1;
}

// The ops one after the other, on host memory. Codes of a row that is not finite are worthless.
void fused_activation_reference(const FusedActivation& args, ThreadPool& pool);

}  // namespace halfbyte
