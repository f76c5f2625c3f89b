// An input of linears as an engine with a method sees it, kept with what is needed to look at its errors.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "model/engine_input.h"

namespace halfbyte {

// x [rows, channels] of the model, changed by a transform without outlier columns and static scales, and rounded as one tensor.
struct EngineInput {
  std::int64_t rows = 0, main = 0, residual = 0;  // main: columns before the residual ones
  Array<float> changed;  // [rows, main], before rounding; empty where nothing is changed: x is it
  Array<float> rounded;  // [rows, main + residual]; empty where spec is of weights only
  std::vector<std::int32_t> residual_at;  // [residual]: columns of main that have residuals
};

EngineInput make_engine_input(const float* x, std::int64_t rows, const InputTransform& transform,
                              const QuantSpec& spec, ThreadPool& pool);

}  // namespace halfbyte
