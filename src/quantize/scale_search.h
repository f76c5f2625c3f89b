// Scale search: block scales that minimise the error of a weight weighted by how much its input channels matter.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/thread_pool.h"
#include "formats/quantized_tensor.h"

namespace halfbyte {

struct ScaleSearch {
  QuantSpec spec;  // any format with scales; ways of its own to choose block scales (4/6) have no effect
  // h [columns], finite and >= 0: E[x_k^2] of the input; empty: all 1
  std::span<const float> importance = {};
  // nvfp4: in the convention of its rule; without one that of search_global_scale
  std::optional<float> global_scale = std::nullopt;
  std::string_view name = "tensor";  // stands in error messages
};

// nvfp4's global scale with head room, so that block codes can go up: the rule applied to 7/4 of the largest magnitude, which
// maps it to 6 * 256 instead of 6 * 448.
float search_global_scale(GlobalScaleRule rule, float amax, DType source);

// w [rows, columns] (rows as in quantized_tensor.h), finite. Every block takes the scale of its candidates (block_scale.h)
// with the least sum over its elements of h_k (w_k - Q(w_k))^2; the first of equals wins, and a scale that float32 cannot
// hold (a step of 0) is passed over. With double quantization the float32 absmax is searched, then kept in 8 bits, and the
// codes are the nearest under what 8 bits left of it. Same bytes for any number of threads and any instruction set.
// Throws bad_input for a w or h that is not finite, with its place, and for a wrong size.
QuantizedTensor search_scales(std::span<const float> w, const Shape& shape, const ScaleSearch& search,
                              ThreadPool& pool);

// The same without codes: the array is there but not filled in.
QuantizedTensor choose_scales(std::span<const float> w, const Shape& shape, const ScaleSearch& search,
                              ThreadPool& pool);

}  // namespace halfbyte
