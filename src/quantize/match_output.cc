#include "quantize/match_output.h"

#include <Eigen/Cholesky>
#include <algorithm>

#include "core/fail.h"
#include "quantize/eigen_blocking.h"

namespace halfbyte {

using Eigen::MatrixXd;
using ConstMap = Eigen::Map<const MatrixXd>;

OutputMatch::OutputMatch(std::span<const double> moment, std::span<const double> cross, std::int64_t channels,
                         const std::string& name, ThreadPool& pool)
    : channels_(channels), change_(channels * channels) {
  HB_DCHECK(static_cast<std::int64_t>(moment.size()) == channels * channels && moment.size() == cross.size());
  fix_eigen_blocking();
  // Read column-major, a row-major matrix is its transpose: cross becomes G^T, and the symmetric moment stays.
  const ConstMap h(moment.data(), channels, channels), g_transposed(cross.data(), channels, channels);
  if (!h.allFinite() || !g_transposed.allFinite())
    fail_input("{}: the calibration text gives NaN or infinite activations; the model's weights are damaged",
               name);
  MatrixXd damped = h;
  const double mean = h.trace() / static_cast<double>(channels);
  damped.diagonal().array() += mean > 0 ? 0.01 * mean : 1.0;
  // (G - H) D^-1 = (D^-1 (G - H)^T)^T with D symmetric.
  const Eigen::LLT<MatrixXd> factor(damped);
  if (factor.info() != Eigen::Success)
    fail_input("{}: its second moments cannot be inverted; calibrate on more text", name);
  constexpr std::int64_t kColumns = 64;
  Eigen::Map<MatrixXd> change(change_.data(), channels, channels);
  pool.parallel_for(ceil_div(channels, kColumns), [&](std::int64_t item) {
    const std::int64_t first = item * kColumns, count = std::min(kColumns, channels - first);
    const MatrixXd part = g_transposed.middleCols(first, count) - h.middleCols(first, count);
    change.middleRows(first, count) = factor.solve(part).transpose();
  });
}

void OutputMatch::move(float* w, std::int64_t rows, std::int64_t stride, double factor,
                       ThreadPool& pool) const {
  constexpr std::int64_t kRows = 64;
  const ConstMap change(change_.data(), channels_, channels_);
  pool.parallel_for(ceil_div(rows, kRows), [&](std::int64_t item) {
    const std::int64_t first = item * kRows, count = std::min(kRows, rows - first);
    MatrixXd part(count, channels_);
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int64_t k = 0; k < channels_; ++k)
        part(n, k) = static_cast<double>(w[(first + n) * stride + k]);
    const MatrixXd moved = part + factor * (part * change);
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int64_t k = 0; k < channels_; ++k)
        w[(first + n) * stride + k] = static_cast<float>(moved(n, k));
  });
}

}  // namespace halfbyte
