// Runs a model over samples and keeps statistics of every distinct input of its linears.
#pragma once

#include <functional>

#include "calibrate/samples.h"
#include "calibrate/stats.h"
#include "model/model.h"

namespace halfbyte {

struct CalibrationProgress {
  std::int64_t done = 0, samples = 0, dropped = 0;
};

struct Calibration {
  CalibrationStats stats;
  std::map<std::string, std::int64_t>
      dropped_at;                        // input where a dropped sample first was not finite, samples
  std::vector<std::string> zero_inputs;  // that were zero throughout
};

// Memory is that of one sample's forward pass and three doubles a channel, whatever the number of samples; with
// second_moments also 12 bytes for each pair of an input's channels (second_moment_bytes). A sample with
// a NaN or an infinity in any input is dropped whole. Throws bad_input, naming the places, as soon as more than 1 % of
// all samples are dropped (a single one counts where there are fewer than 100). The same statistics for any number of
// threads. The model's observer is replaced and empty afterwards.
Calibration calibrate(Model& model, const SampleSet& samples, const SampleOptions& options, ThreadPool& pool,
                      const std::function<void(const CalibrationProgress&)>& progress = {},
                      bool second_moments = false);

// What second moments of all inputs take while they are gathered.
std::int64_t second_moment_bytes(const ModelConfig& config);

// Bin of a token's maximum in InputStats::token_max_histogram.
int token_max_bin(float max);

}  // namespace halfbyte
