#include "analyze/input_probe.h"

#include <algorithm>
#include <cmath>

#include "analyze/bound.h"
#include "formats/nvfp4.h"
#include "quantize/methods.h"

namespace halfbyte {

namespace {

// Counts |x - q| / absmax of rows of `columns` values; q_of(row, column) is q.
template <typename Rounded>
void count_errors(const float* x, std::int64_t rows, std::int64_t columns, double absmax, const Rounded& q_of,
                  std::optional<ErrorHistogram>& histogram, ThreadPool& pool) {
  std::vector<ErrorHistogram> counts(static_cast<std::size_t>(rows));
  pool.parallel_for(rows, [&](std::int64_t m) {
    ErrorHistogram& row = counts[static_cast<std::size_t>(m)];
    for (std::int64_t k = 0; k < columns; ++k) {
      const double error = std::abs(static_cast<double>(x[m * columns + k]) - q_of(m, k));
      ++row[static_cast<std::size_t>(error_bin(absmax > 0 ? error / absmax : 0))];
    }
  });
  if (!histogram) histogram.emplace();
  for (const ErrorHistogram& row : counts)
    for (std::size_t bin = 0; bin < row.size(); ++bin) (*histogram)[bin] += row[bin];
}

// a / b; something over nothing counts as 1e9, so that it stands out.
double ratio(double a, double b) { return b > 0 ? a / b : a > 0 ? 1e9 : 1; }

// Share of the first n of one ranking that are among the first n of the other.
double overlap(std::vector<std::int32_t> a, std::vector<std::int32_t> b, std::size_t n) {
  a.resize(n), b.resize(n);
  std::ranges::sort(a);
  std::ranges::sort(b);
  std::vector<std::int32_t> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(n);
}

}  // namespace

int error_bin(double ratio) {
  if (!(ratio > 0)) return 0;
  return std::clamp(kErrorBins - 1 + std::ilogb(ratio), 0, kErrorBins - 1);
}

InputProbe::InputProbe(std::string name, std::int64_t layer, const InputStats& stats, const QuantSpec& spec,
                       const InputTransform* arc)
    : stats_(stats), spec_(spec), arc_(arc), absmax_(stats.absmax.size()), squares_(stats.absmax.size()) {
  found_.name = std::move(name);
  found_.layer = layer;
  found_.channels = static_cast<std::int64_t>(stats.absmax.size());
  found_.calibrated_absmax = static_cast<double>(stats.global_absmax);
  if (arc) found_.residual = arc->info.residual;
  if (spec.format != Format::nvfp4) return;
  found_.clipped = 0;
  const float global = nvfp4_global_scale(spec.global_scale, stats.global_absmax, DType::f32);
  range_ = static_cast<double>(nvfp4_range(spec.global_scale, global));
}

void InputProbe::add(const float* x, std::int64_t rows, const EngineInput* rtn, const EngineInput* arc,
                     ThreadPool& pool) {
  const std::int64_t channels = found_.channels;
  tokens_ += rows;
  double absmax = 0;
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t k = 0; k < channels; ++k) {
      const auto i = static_cast<std::size_t>(k);
      const float magnitude = std::abs(x[m * channels + k]);
      absmax_[i] = std::max(absmax_[i], magnitude);
      squares_[i] += static_cast<double>(magnitude) * static_cast<double>(magnitude);
      absmax = std::max(absmax, static_cast<double>(magnitude));
      if (found_.clipped && static_cast<double>(magnitude) > range_) ++*found_.clipped;
    }
  if (found_.clipped) found_.clipped_largest = std::max(found_.clipped_largest, absmax / range_);

  if (rtn && rtn->rounded.size())
    count_errors(
        x, rows, channels, absmax,
        [&](std::int64_t m, std::int64_t k) { return static_cast<double>(rtn->rounded[m * channels + k]); },
        found_.rtn, pool);
  if (!arc || !arc->rounded.size()) return;
  const std::int64_t main = arc->main, width = main + arc->residual;
  const float* changed = arc->changed.data();
  const auto first = [&](std::int64_t m, std::int64_t k) {
    return static_cast<double>(arc->rounded[m * width + k]);
  };
  std::vector<std::int64_t> residual_of(static_cast<std::size_t>(main), -1);
  for (std::int64_t j = 0; j < arc->residual; ++j)
    residual_of[static_cast<std::size_t>(arc->residual_at[static_cast<std::size_t>(j)])] = j;
  const auto both = [&](std::int64_t m, std::int64_t k) {
    const std::int64_t j = residual_of[static_cast<std::size_t>(k)];
    return first(m, k) + (j < 0 ? 0.0 : static_cast<double>(arc->rounded[m * width + main + j]));
  };
  count_errors(changed, rows, main, absmax, first, found_.before, pool);
  count_errors(changed, rows, main, absmax, both, found_.after, pool);
  // Columns that fill up the last block are zeros without error; they are no values of the model.
  (*found_.before)[0] -= rows * (main - channels);
  (*found_.after)[0] -= rows * (main - channels);
  if (spec_.format == Format::nvfp4 && arc->residual) {
    if (!found_.bound) found_.bound.emplace();
    merge(*found_.bound, check_bound(x, channels, *arc_, *arc, spec_, pool));
  }
}

InputAnalysis InputProbe::finish(double tau, bool capped) const {
  InputAnalysis found = found_;
  found.capped = capped;
  found.absmax = static_cast<double>(*std::ranges::max_element(absmax_));
  const auto channels = static_cast<double>(found.channels);
  const double limit = std::exp2(-tau) * static_cast<double>(*std::ranges::max_element(stats_.absmax));
  double square = 0, calibrated_square = 0;
  std::int64_t above = 0;
  for (std::size_t k = 0; k < absmax_.size(); ++k) {
    square += squares_[k] / static_cast<double>(std::max<std::int64_t>(1, tokens_));
    calibrated_square += static_cast<double>(stats_.mean_square[k]);
    found.drift.channels_above += absmax_[k] > stats_.absmax[k];
    above += static_cast<double>(stats_.absmax[k]) > limit;
  }
  found.above_tau = static_cast<double>(above) / channels;
  found.drift.absmax_ratio = ratio(found.absmax, found.calibrated_absmax);
  found.drift.mean_square_ratio = ratio(square, calibrated_square);
  const std::int64_t top = found.residual ? found.residual : std::max<std::int64_t>(1, found.channels / 20);
  found.drift.top_overlap = overlap(rank_by_absmax(absmax_), rank_by_absmax(stats_.absmax),
                                    static_cast<std::size_t>(std::min(top, found.channels)));
  if (found.bound && found.bound->values) {
    found.bound->mean_square /= static_cast<double>(found.bound->values);
    found.bound->mxfp8_mean_square /= static_cast<double>(found.bound->values);
  }
  return found;
}

}  // namespace halfbyte
