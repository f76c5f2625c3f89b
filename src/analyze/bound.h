// The error bound of residual channels (docs/methods.md), checked on one tensor of activations in NVFP4.
#pragma once

#include "analyze/analysis.h"
#include "analyze/rounded_input.h"

namespace halfbyte {

// x [rows, channels], as the model computes it; input: what the method arc makes of it under spec, which is nvfp4. The
// means of squares are sums here, over the largest |x|.
BoundCheck check_bound(const float* x, std::int64_t channels, const InputTransform& transform,
                       const EngineInput& input, const QuantSpec& spec, ThreadPool& pool);

// Adds what was found on other tokens of the same input.
void merge(BoundCheck& all, const BoundCheck& more);

}  // namespace halfbyte
