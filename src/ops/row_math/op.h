// Exponentials over a row on the calling thread: the parts that softmax, SiLU, losses and divergences are
// made of.
#pragma once

#include <cstdint>

namespace halfbyte {

// Largest of n >= 1 values.
float row_max(const float* x, std::int64_t n);

// x[i] = exp(scale * x[i] - shift); returns the sum of the results.
double exp_row(float* x, std::int64_t n, float scale, float shift);

// log(sum over i of exp(x[i])) of n >= 1 values, with the maximum taken out first; x is left alone.
double log_sum_exp(const float* x, std::int64_t n);

// sum over i of exp(p[i] - p_lse) * ((p[i] - p_lse) - (q[i] - q_lse)): KL(p || q) of two rows of logits, in
// nats.
double kl_divergence(const float* p, double p_lse, const float* q, double q_lse, std::int64_t n);

// out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]
void silu_mul_row(const float* gate, const float* up, float* out, std::int64_t n);

// Index of the largest value; the first of equals.
std::int64_t row_argmax(const float* x, std::int64_t n);

// Of one prediction: -log of the probability of the token that came; and, against a reference's logits of the same position,
// KL(reference || model) in nats and whether both find the same token most likely (1 or 0), else 0.
struct TokenScore {
  double nll = 0, kl = 0, agreed = 0;
};

// logits, reference: [vocab]; reference may be null.
TokenScore score_token(const float* logits, const float* reference, std::int32_t target, std::int64_t vocab);

// Name of the instruction set these run on here: "AVX3", "AVX2", "NEON", ...
const char* row_math_target();

}  // namespace halfbyte
