// Mixed precision after Atom (Zhao et al. 2023): the channels with the largest magnitudes keep 8 bits, weights and
// activations alike, the others have the plan's format; the 8-bit ones are moved to the end. Needs statistics of the inputs.
#pragma once

#include <cstdint>
#include <span>

#include "calibrate/stats.h"
#include "quantize/plan.h"

namespace halfbyte {

struct AtomOptions {
  std::int64_t outliers = 128;              // channels that keep 8 bits; at most K - 1
  ColumnOrder order = ColumnOrder::rising;  // of the others; or natural
};

// Plans every input of linears whose activations are rounded as the plan's are. The outliers are int8, one scale a row of
// these columns for weights and activations.
void plan_atom(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
               const CalibrationStats& stats, const AtomOptions& options);

}  // namespace halfbyte
