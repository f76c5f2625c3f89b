// What the rounding of inputs loses, and how large the outputs are, on calibration text.
#pragma once

#include <map>
#include <string>

#include "calibrate/samples.h"
#include "model/model.h"
#include "quantize/residual_budget.h"

namespace halfbyte {

// Of every input of quantized linears, scaled as the plan says (a scale that is folded too), rounded as the plan's activations.
// model: the original one. Takes about `tokens` tokens: the first ones of each sample. The same for any number of threads.
std::map<std::string, ResidualStatistics> residual_statistics(Model& model, const Checkpoint& checkpoint,
                                                              const QuantizePlan& plan,
                                                              std::span<const LinearSource> linears,
                                                              const SampleSet& samples, std::int64_t tokens,
                                                              ThreadPool& pool);

}  // namespace halfbyte
