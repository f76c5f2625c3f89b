// What the methods share: finding an input's statistics, and entering what they decided into the plan.
#pragma once

#include <span>
#include <vector>

#include "calibrate/stats.h"
#include "quantize/plan.h"

namespace halfbyte {

// Throws bad_input where the statistics lack the input or have another number of channels.
const InputStats& stats_of(const CalibrationStats& stats, const InputGroup& group);

// Channels by falling absmax; of equals the lower one first.
std::vector<std::int32_t> rank_by_absmax(std::span<const float> absmax);

// Every tensor of the group reads the input as it is planned; its name is set here.
PlannedInput& add_input(QuantizePlan& plan, const InputGroup& group, PlannedInput input);

}  // namespace halfbyte
