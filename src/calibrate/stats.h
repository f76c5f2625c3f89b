// Statistics of what goes into a model's linears, as data: what calibrate gathers and what methods choose by.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace halfbyte {

// Bins of the histogram of per-token maxima, two an octave: bin 64 + 2 e holds [2^e, 1.5 * 2^e), the next one [1.5 * 2^e,
// 2^(e + 1)). What is below 2^-32 (zero too) counts in bin 0, what is from 1.5 * 2^31 on in the last.
inline constexpr int kTokenMaxBins = 128;

// A scale needs a magnitude: an input that was zero throughout counts as this large (the smallest that the rules pow2 and
// amax of nvfp4 tell from zero).
inline constexpr float kZeroInputAbsmax = 1e-12f;

// One distinct input: x [tokens, K], the values that all linears reading it see, before any rounding.
struct InputStats {
  std::vector<float> absmax;       // [K] max over tokens of |x_k|
  std::vector<float> mean_square;  // [K] mean over tokens of x_k^2, summed in double
  std::vector<float> mean_abs;     // [K] mean over tokens of |x_k|, the same
  std::array<std::int64_t, kTokenMaxBins> token_max_histogram{};  // of max over k of |x_k|
  float global_absmax = 0.0f;  // max of absmax; kZeroInputAbsmax where that is 0
  std::vector<float> second_moment =
      {};  // [K, K] mean over tokens of x_j x_k, symmetric; empty unless asked for
};

struct CalibrationStats {
  std::map<std::string, InputStats, std::less<>> inputs;  // by input_name (model/linears.h)
  std::int64_t tokens = 0, samples = 0;                   // that went in
  std::int64_t dropped = 0;                               // samples left out for a NaN or an infinity
  std::int64_t seq_len = 0;                               // tokens of a sample
  std::uint64_t seed = 0;                                 // of the choice of samples
  std::vector<std::string> sources = {};                  // SHA-256 of each text file
};

}  // namespace halfbyte
