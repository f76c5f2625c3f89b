// Changes of basis that a method puts before rounding: channel scales, a Hadamard rotation, a gather of columns.
#pragma once

#include <cstdint>

#include "core/thread_pool.h"

namespace halfbyte {

enum class ScaleDirection : std::uint8_t { divide, multiply };  // activations, weights

// out[m, j] = t[m, columns[j]] with t = (x / scale or x * scale) rotated. Rotating: each run of `hadamard` values is
// multiplied by the Sylvester matrix of that size over its square root (H(2n) = [H H; H -H]), which is its own inverse.
struct TransformInput {
  std::int64_t rows = 0, channels = 0;  // M, K
  const float* x = nullptr;             // [M, K], contiguous
  const float* scale = nullptr;         // [K] or null
  ScaleDirection direction = ScaleDirection::divide;
  std::int64_t hadamard = 0;              // a power of two that divides K; 0 or 1: none
  const std::int32_t* columns = nullptr;  // [width], -1 gives 0; null: all, width = K
  std::int64_t width = 0;
  float* out = nullptr;  // [M, width], contiguous; not x
};

// Every row by itself: the same result for any number of threads.
void transform_input(const TransformInput& args, ThreadPool& pool);

// The Sylvester transform of n values (a power of two) in place, over its square root.
void hadamard_in_place(float* x, std::int64_t n);

// Largest power of two that divides n >= 1.
constexpr std::int64_t largest_power_of_two_in(std::int64_t n) { return n & -n; }

}  // namespace halfbyte
