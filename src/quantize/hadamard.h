// Hadamard rotation: an input and its weights are multiplied by the same orthogonal matrix of signs, which spreads outliers
// over many channels and leaves the product as it was. Needs no data.
#pragma once

#include <cstdint>
#include <span>

#include "quantize/plan.h"

namespace halfbyte {

// Rotates runs of `block` channels, a power of two; 0: the largest one that divides K. A block that does not divide K is
// halved until it does, so any K is possible.
void plan_hadamard(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
                   std::int64_t block);

}  // namespace halfbyte
