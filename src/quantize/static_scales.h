// Fixed global scales for activations: taken from calibration instead of the values of each run.
#pragma once

#include <span>

#include "calibrate/stats.h"
#include "quantize/plan.h"

namespace halfbyte {

// After the method: every nvfp4 input with ActivationScope::fixed gets the global scale of its largest magnitude in
// calibration, divided as its channels are; residuals of their own get that of a sixth of it, more than a rounding can
// leave. Throws where a rotation hides what that magnitude becomes.
void plan_static_scales(const Checkpoint& checkpoint, QuantizePlan& plan,
                        std::span<const LinearSource> linears, const CalibrationStats& stats);

}  // namespace halfbyte
