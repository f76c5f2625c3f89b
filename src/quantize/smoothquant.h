// SmoothQuant: each channel of an input is divided, and its weight columns multiplied, by a factor that moves part of the
// activations' range into the weights. Paper: Xiao et al. 2023, equation 4. Needs statistics of the inputs.
#pragma once

#include <span>

#include "calibrate/stats.h"
#include "core/thread_pool.h"
#include "quantize/plan.h"

namespace halfbyte {

// s_k = max(absmax_k, 1e-5)^alpha / max(w_k, 1e-5)^(1 - alpha), w_k the largest |weight| of column k in all linears that
// read the input. Reads these weights once. alpha from 0 (all stays with the activations) to 1.
void plan_smoothquant(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
                      const CalibrationStats& stats, double alpha, ThreadPool& pool);

}  // namespace halfbyte
