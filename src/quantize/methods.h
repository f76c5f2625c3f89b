// What the methods share: finding an input's statistics, and entering what they decided into the plan.
#pragma once

#include "calibrate/stats.h"
#include "quantize/plan.h"

namespace halfbyte {

// Throws bad_input where the statistics lack the input or have another number of channels.
const InputStats& stats_of(const CalibrationStats& stats, const InputGroup& group);

// Every tensor of the group reads the input changed by transform.
void add_input(QuantizePlan& plan, const InputGroup& group, InputTransform transform);

}  // namespace halfbyte
