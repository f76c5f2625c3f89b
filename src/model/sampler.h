// Choosing the next token from a row of logits.
#pragma once

#include <cstdint>
#include <random>

namespace halfbyte {

struct SamplingOptions {
  double temperature = 0;  // 0: the most likely token
  std::int64_t top_k = 0;  // only the k most likely; 0: all
  double top_p = 1.0;      // only the fewest most likely whose probabilities reach top_p together
  std::uint64_t seed = 0;
};

// Same options and logits, same tokens, on any machine with the same floating-point exp.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);  // throws bad_input for options out of range
  std::int32_t next(const float* logits, std::int64_t vocab);

 private:
  SamplingOptions options_;
  std::mt19937_64 random_;
};

}  // namespace halfbyte
