// What an engine makes of an input before the product: changed by a method, then rounded. The model runs it and analyze looks
// at its errors.
#pragma once

#include <cstdint>
#include <span>

#include "checkpoint/input_transform.h"
#include "checkpoint/spec_json.h"
#include "core/tensor.h"
#include "core/thread_pool.h"

namespace halfbyte {

// A method that changes nothing, for an input of so many channels.
InputTransform unchanged_input(std::int64_t channels);

// Columns before those that a method appends: what is rounded in the common format or kept as outliers.
inline std::int64_t changed_columns(const InputInfo& info) { return info.width - info.residual; }

// x [rows, channels] scaled, rotated and gathered, [rows, changed_columns]: in `buffer`, which grows as needed, or x itself
// where nothing is done to it.
const float* change_input(const float* x, std::int64_t rows, const InputTransform& transform,
                          Array<float>& buffer, ThreadPool& pool);

// Rounds what change_input gave, in `buffer`: [rows, width]. residual: residual_positions() of the transform.
const float* round_input(const float* changed, std::int64_t rows, const InputInfo& info,
                         std::span<const std::int32_t> residual, const ActivationSpec& activations,
                         Array<float>& buffer, ThreadPool& pool);

}  // namespace halfbyte
