// SmoothQuant: each channel of an input is divided, and its weight columns multiplied, by a factor that moves part of the
// activations' range into the weights. Paper: Xiao et al. 2023, equation 4. Needs statistics of the inputs.
#pragma once

#include <span>

#include "calibrate/stats.h"
#include "core/thread_pool.h"
#include "quantize/plan.h"

namespace halfbyte {

enum class SmoothStatistic : std::uint8_t {
  absmax,  // largest magnitudes, as published
  rms,     // root mean squares; the factors of an input are then divided by their geometric mean
};

struct SmoothOptions {
  double alpha = 0.5;  // from 0 (all stays with the activations) to 1
  SmoothStatistic by = SmoothStatistic::absmax;
};

// s_k = max(x_k, 1e-5)^alpha / max(w_k, 1e-5)^(1 - alpha): x_k of channel k in the statistics, w_k of column k in all linears that
// read the input. Reads these weights once.
//
// Where an input has a producer, and all that reads it is quantized, the division is folded into the producer and costs
// nothing at run time: into a norm's gains, or into the rows of a quantized linear without bias. Channels that come from one
// row (o_proj's of query heads that share a value head) then share a factor, from the largest of both maxima (rms: from the root
// of both mean squares' mean). A gain g becomes g' = g / s rounded to its type, and s = g / g', so that the rounding of gains
// loses nothing. No producers: all divisions are left to run time.
void plan_smoothquant(const Checkpoint& checkpoint, QuantizePlan& plan, std::span<const LinearSource> linears,
                      const CalibrationStats& stats, const SmoothOptions& options, ThreadPool& pool,
                      const Producers& producers = {});

}  // namespace halfbyte
