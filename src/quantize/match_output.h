// Moves a weight, before it is rounded, towards what gives the original model's outputs on the inputs that a quantized model has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "core/thread_pool.h"

namespace halfbyte {

// With x the input in the quantized model (before its own rounding) and x_f the original's, H = E[x x^T], G = E[x_f x^T]: the
// weight W' = W + factor (W G - W H) (H + 0.01 mean(diag H) I)^-1. At factor 1 it is the damped least-squares fit of W x_f by
// W' x. In double, sums in an order that depends on the sizes alone.
// Memory: 16 bytes for each of the K^2 moments.
class OutputMatch {
 public:
  // moment, cross: [K, K] of x and of x_f (rows) by x (columns). Throws bad_input, naming the input, where the moments are not
  // finite.
  OutputMatch(std::span<const double> moment, std::span<const double> cross, std::int64_t channels,
              const std::string& name, ThreadPool& pool);

  // w [rows, K] with row stride `stride`, changed in place.
  void move(float* w, std::int64_t rows, std::int64_t stride, double factor, ThreadPool& pool) const;

 private:
  std::int64_t channels_;
  Array<double> change_;  // [K, K] column-major: (G - H) (H + damping)^-1
};

}  // namespace halfbyte
