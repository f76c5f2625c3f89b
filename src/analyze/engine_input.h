// An input of linears as an engine with a method sees it: changed, then rounded, with what is needed to look at its errors.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/input_transform.h"
#include "checkpoint/spec_json.h"
#include "core/tensor.h"
#include "core/thread_pool.h"

namespace halfbyte {

// A method that changes nothing, for an input of so many channels.
InputTransform unchanged_input(std::int64_t channels);

// x [rows, channels] of the model, changed by a transform without outlier columns and static scales, and rounded as one tensor.
struct EngineInput {
  std::int64_t rows = 0, main = 0, residual = 0;  // main: columns before the residual ones
  Array<float> changed;  // [rows, main], before rounding; empty where nothing is changed: x is it
  Array<float> rounded;  // [rows, main + residual]; empty where spec is of weights only
  std::vector<std::int32_t> residual_at;  // [residual]: columns of main that have residuals
};

EngineInput make_engine_input(const float* x, std::int64_t rows, const InputTransform& transform,
                              const QuantSpec& spec, ThreadPool& pool);

// Whether a format can round activations: its blocks lie along rows.
bool rounds_activations(const QuantSpec& spec);

}  // namespace halfbyte
