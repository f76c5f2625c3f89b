// Activations with residual channels: what the rounding of chosen columns lost is rounded again and appended, so that one
// product over K + S columns carries it (ARCQuant).
#pragma once

#include <cstdint>

#include "core/thread_pool.h"
#include "formats/formats.h"
#include "ops/fake_quantize/op.h"

namespace halfbyte {

// out = [q | fake_quantize(x[:, residual] - q[:, residual])], q = fake_quantize(x), both by spec and scope.
struct Augment {
  std::int64_t rows = 0, columns = 0;      // M, K; K is a multiple of the block
  const float* x = nullptr;                // [M, K], contiguous
  const std::int32_t* residual = nullptr;  // [S] columns
  std::int64_t residual_count = 0;         // S
  QuantSpec spec;
  ScaleScope scope = ScaleScope::tensor;
  // nvfp4: whether the residuals are rounded under the global scale of x, as one tensor [x | r] would be, or under one of
  // their own. |r| never exceeds |x| at its largest, so the global scale of [x | r] is that of x.
  bool shared_scale = false;
  // nvfp4: fixed global scales instead of those of the values; residual_global_scale where it is not shared
  std::optional<float> global_scale = std::nullopt, residual_global_scale = std::nullopt;
  float* out = nullptr;  // [M, K + S], contiguous; not x
};

void augment(const Augment& args, ThreadPool& pool);

}  // namespace halfbyte
