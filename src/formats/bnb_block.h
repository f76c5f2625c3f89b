// Block scaling of bitsandbytes, shared by NF4 and FP4: what absmax is stored, how values come to [-1, 1].
//   blocks  `block size` consecutive elements of the flattened tensor, over row ends; the last may be short
//   full    value * R32(1 / max(absmax, 1e-38)), clamped; absmax is stored as it is, so a zero block stores 0
//   last    a short last block divides by max(absmax, 1e-38) and stores that maximum: 1e-38 for zeros
//   decode  R32(level * absmax)
//   source  the CPU path of bitsandbytes 0.50.2; its CUDA path multiplies in every block and does not clamp
#pragma once

#include "formats/hd.h"

namespace halfbyte {

struct BnbScale {
  float stored;  // the absmax that the tensor keeps
  float factor;  // multiplies (full block) or divides (short block) the values
  bool divides;
};

HB_HD constexpr BnbScale bnb_scale(float absmax, bool full_block) {
  const float clamped = absmax < 1e-38f ? 1e-38f : absmax;
  if (full_block) return {.stored = absmax, .factor = 1.0f / clamped, .divides = false};
  return {.stored = clamped, .factor = clamped, .divides = true};
}

// The value to look up among the levels, in [-1, 1].
HB_HD constexpr float bnb_normalise(const BnbScale& scale, float x) {
  const float value = scale.divides ? x / scale.factor : mul_rn(x, scale.factor);
  return value < -1.0f ? -1.0f : value > 1.0f ? 1.0f : value;
}

static_assert(bnb_scale(0.0f, true).stored == 0.0f && bnb_scale(0.0f, false).stored == 1e-38f);

}  // namespace halfbyte
