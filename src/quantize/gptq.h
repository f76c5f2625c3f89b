// Error feedback (GPTQ): columns of a weight are rounded one after the other, and each takes up what the rounding of those
// before it changed in the output.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "core/thread_pool.h"
#include "formats/quantized_tensor.h"

namespace halfbyte {

// What is added to the diagonal of the second moments, d the damping: d times each entry itself, or d times the mean over the
// main columns. Either way 1e-12 of the largest entry too, and an input that was zero throughout counts as 1.
enum class DampingKind : std::uint8_t { relative, mean };

struct GptqOptions {
  double damping = 0.01;
  DampingKind kind = DampingKind::relative;
  std::string name = "input";  // stands in error messages
  int passes = 1;              // above 1: scales move, see quantize(), for 4 bytes more a second moment
};

// The second moments of one input, made ready for the weights that read it.
//
// Columns are visited in one order for all rows: the K main ones by falling second moment (equal ones as they come), then the
// S residual ones as they come. With H the damped moments in that order and H = R R^T, R upper triangular, column j is rounded
// as w~_j = w_j + sum over i < j of (w_i - q_i) R_ij / R_jj, and the output's error is sum (w~_j - q_j)^2 R_jj^2. That is the
// recurrence over H^-1 = U^T U of Frantar et al. 2022 (arXiv 2210.17323) with U = R^-1, without an inverse. All of it in
// double, products and sums in an order that depends on the sizes alone.
// Memory: 8 bytes for each of the (K + S)^2 moments while it lives; in quantize() 0.6 KB a column and thread.
class ErrorFeedback {
 public:
  // second_moment: [K + S, K + S] E[x_j x_k] of what the weight will really be multiplied by, the residual columns last;
  // only its upper triangle is read, and only here. Where it is not positive definite the damping is raised tenfold, up to
  // three times. Throws bad_input where that does not help, for entries that are not finite, and for wrong sizes.
  ErrorFeedback(std::span<const float> second_moment, std::int64_t main, std::int64_t residual,
                const GptqOptions& options, ThreadPool& pool);

  // w [rows, K + S], finite, the residual columns' copies last. Main columns keep the scales that choose_scales finds with the
  // diagonal of the moments as importance, in blocks of the natural order. Whole blocks of residual columns (formats with
  // blocks along a row) try every candidate of their block's absmax at that time and keep the one with the least error. The
  // result is stored in the natural order. Where scales are float32, stored as they are, and blocks end with their row, each row is
  // rounded `passes` times: after each its scales move to where the output's error is least under the codes found, a linear
  // system for a row, and the pass with the least error counts. Same bytes for any number of threads. Throws as choose_scales does.
  QuantizedTensor quantize(std::span<const float> w, const QuantSpec& spec, std::optional<float> global_scale,
                           ThreadPool& pool, std::string_view name = "tensor") const;

  // The damping that was enough.
  double damping() const { return damping_; }

 private:
  double damped(double moment, DampingKind kind) const;
  void fill(std::span<const float> second_moment, DampingKind kind, ThreadPool& pool);

  std::int64_t main_, width_;  // K, K + S
  double damping_;
  double mean_ = 0, largest_ = 0;  // of the second moments; the mean of the main columns'
  std::vector<float> moments_;     // [K + S] the diagonal before damping
  // A slot is a place in the order counted from its end: slot width - 1 is visited first, so R becomes the lower triangular
  // factor of the ordinary Cholesky decomposition.
  std::vector<std::int32_t> columns_;  // [K + S] by slot
  Array<double>
      factor_;  // [K + S, K + S] column-major; below the diagonal (i, j): R_ij / R_jj of these slots
  std::vector<double> diagonal_;  // [K + S] R_jj by slot
  int passes_;
  Array<float> damped_;  // [K + S, K + S] the damped moments in the natural order, where passes_ is above 1
};

}  // namespace halfbyte
