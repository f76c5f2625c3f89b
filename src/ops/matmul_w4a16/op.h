// Product of 16-bit activations with 4-bit weights: out[M,N] = A[M,K] W[N,K]^T + bias[N], summed in float32.
#pragma once

#include <span>

#include "core/tensor.h"
#include "formats/quantized_tensor.h"

namespace halfbyte {

// Weights W[N,K]: nvfp4, mxfp4, nf4, fp4 (doubly quantized or not), int4; K a multiple of the block size. Activations
// A[M,K] and bias[N] (may be empty): bf16 or f16, of one type. Throws bad_input for anything else.
struct MatmulW4A16 {
  const QuantizedTensor* weights = nullptr;
  TensorView activations;
  TensorView bias;
};

// The product of the decoded values in double, and beside it the sum of the magnitudes of its terms, to which the rounding
// errors of any implementation are proportional. Plain loops, never tuned. out and magnitude: [M,N].
void matmul_w4a16_reference(const MatmulW4A16& args, std::span<double> out, std::span<double> magnitude);

// Throws bad_input where weights of that kind and shape cannot be multiplied. On the device and off it.
void check_w4a16_weights(const QuantSpec& spec, std::int64_t rows, std::int64_t columns);

}  // namespace halfbyte
