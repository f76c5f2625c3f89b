// What analyze finds out about a model under rounding, as data: analysis.json in memory (docs/report.md).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace halfbyte {

// Bins of a histogram of errors by the binary logarithm of |error| over the largest magnitude of the input they were made
// in: bin i > 0 counts [2^(i - 24), 2^(i - 23)), the last one 1 and more, bin 0 all that is below 2^-23, zero too.
inline constexpr int kErrorBins = 25;
using ErrorHistogram = std::array<std::int64_t, kErrorBins>;

// Sum of |y_q - y|^2 over the sum of |y|^2, y the linear's outputs over all tokens without its bias, y_q those of the
// rounded linear.
struct OutputError {
  double both = 0;     // weights and activations rounded
  double weights = 0;  // weights alone
};

// A candidate format of a linear, rounded to nearest.
struct FormatError {
  OutputError error;
  double bits = 0;  // per weight, scales included
};

struct LinearAnalysis {
  std::string name, input;  // "model.layers.3.mlp.down_proj", "model.layers.3.mlp_product"
  std::int64_t layer = 0, out = 0, in = 0;
  double output_square = 0;                    // mean over tokens of |y|^2
  std::map<std::string, OutputError> methods;  // by name: "rtn", "arc", ..
  std::map<std::string, FormatError> formats;  // by name: "nvfp4", "bf16", ..
};

// The analysed text against the calibration text.
struct InputDrift {
  double absmax_ratio = 0;          // largest magnitude, analysed over calibrated
  double mean_square_ratio = 0;     // the same of the mean square
  std::int64_t channels_above = 0;  // channels whose largest magnitude is above that of calibration
  double top_overlap =
      0;  // share of the largest channels (as many as have residuals, else 5 %) that both texts have
};

// |e| of every compensated value against alpha1 alpha2 M eps8 (docs/methods.md) and against MXFP8 on the same values.
struct BoundCheck {
  std::int64_t values = 0;  // compensated
  std::int64_t guaranteed =
      0;  // of them, those where both block scales are normal E4M3 numbers, so that the bound holds
  std::int64_t violations = 0;     // of the guaranteed ones: must be 0
  std::int64_t above_outside = 0;  // above the same bound among the others
  double largest_share = 0;        // largest |e| over the bound, of the guaranteed ones
  double largest_alpha = 0;        // largest alpha1 alpha2 of the guaranteed ones
  double mean_square = 0;          // of e / the input's largest magnitude, all compensated values
  double mxfp8_largest_share = 0;  // largest |e| of MXFP8 over 2 M eps8, M of its own block
  double mxfp8_mean_square = 0;    // as mean_square
};

struct InputAnalysis {
  std::string name;
  std::int64_t layer = 0, channels = 0;
  double absmax = 0, calibrated_absmax = 0;
  double above_tau = 0;  // share of channels whose calibrated absmax is above 2^-tau of the largest
  InputDrift drift;
  std::optional<std::int64_t>
      clipped;                 // nvfp4: values beyond what the static global scale of calibration can say
  double clipped_largest = 0;  // the largest magnitude over that range
  std::optional<ErrorHistogram> rtn;  // of the rounding in storage order
  // With the method arc: residual channels, whether the cap cut them, errors of its first rounding and after both.
  std::int64_t residual = 0;
  bool capped = false;
  std::optional<ErrorHistogram> before, after;
  std::optional<BoundCheck> bound;  // nvfp4 with residual channels
};

struct Analysis {
  std::vector<std::string> command;  // that makes it again, without --threads and -o
  std::string model, stats, format;  // format: what the methods round to, "nvfp4 pow2"
  std::vector<std::string> texts;
  std::int64_t windows = 0, seq_len = 0, tokens = 0;
  double tau = 3;
  std::string residual_rule;                  // "tau=3"
  std::vector<std::string> methods, formats;  // in the order they were asked for
  std::vector<InputAnalysis> inputs;          // in the order the model runs
  std::vector<LinearAnalysis> linears;
  std::vector<std::string> findings;  // sentences
};

}  // namespace halfbyte
