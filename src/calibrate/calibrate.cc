#include "calibrate/calibrate.h"

#include <algorithm>
#include <cmath>

#include "calibrate/moments.h"
#include "core/fail.h"

namespace halfbyte {

namespace {

// Sums of one input over some tokens.
struct Sums {
  Sums() = default;
  explicit Sums(std::size_t channels) : absmax(channels), square(channels), abs(channels) {}

  std::vector<float> absmax;
  std::vector<double> square, abs;
  std::array<std::int64_t, kTokenMaxBins> histogram{};
  std::vector<float> moment;         // [K, K] of one sample, or empty
  std::vector<double> moment_total;  // of all samples

  void clear() {
    std::ranges::fill(absmax, 0.0f);
    std::ranges::fill(square, 0.0);
    std::ranges::fill(abs, 0.0);
    histogram.fill(0);
  }

  void merge(const Sums& other) {
    if (absmax.empty()) *this = Sums(other.absmax.size());
    moment_total.resize(other.moment.size());
    for (std::size_t i = 0; i < other.moment.size(); ++i)
      moment_total[i] += static_cast<double>(other.moment[i]);
    for (std::size_t k = 0; k < absmax.size(); ++k) {
      absmax[k] = std::max(absmax[k], other.absmax[k]);
      square[k] += other.square[k];
      abs[k] += other.abs[k];
    }
    for (std::size_t bin = 0; bin < histogram.size(); ++bin) histogram[bin] += other.histogram[bin];
  }
};

// Adds x [rows, columns]; false where a value is not finite. Channels are shared among threads, so each sum runs over the
// tokens in order.
bool add(const float* x, std::int64_t rows, std::int64_t columns, Sums& sums, ThreadPool& pool) {
  const auto width = static_cast<std::size_t>(columns);
  if (sums.absmax.size() != width) sums = Sums(width);
  constexpr std::int64_t kChannels = 64;
  const std::int64_t items = ceil_div(columns, kChannels);
  std::vector<float> maxima(static_cast<std::size_t>(items * rows));  // [items, rows]
  std::vector<char> finite(static_cast<std::size_t>(items), 1);
  pool.parallel_for(items, [&](std::int64_t item) {
    const std::int64_t first = item * kChannels, last = std::min(columns, first + kChannels);
    bool good = true;
    for (std::int64_t r = 0; r < rows; ++r) {
      float largest = 0.0f;
      for (std::int64_t k = first; k < last; ++k) {
        const float magnitude = std::abs(x[r * columns + k]);
        good = good && magnitude < INFINITY;
        const auto i = static_cast<std::size_t>(k);
        sums.absmax[i] = std::max(sums.absmax[i], magnitude);
        sums.square[i] += static_cast<double>(magnitude) * magnitude;
        sums.abs[i] += magnitude;
        largest = std::max(largest, magnitude);
      }
      maxima[static_cast<std::size_t>(item * rows + r)] = largest;
    }
    finite[static_cast<std::size_t>(item)] = good;
  });
  if (std::ranges::find(finite, 0) != finite.end()) return false;
  for (std::int64_t r = 0; r < rows; ++r) {
    float largest = 0.0f;
    for (std::int64_t item = 0; item < items; ++item)
      largest = std::max(largest, maxima[static_cast<std::size_t>(item * rows + r)]);
    ++sums.histogram[static_cast<std::size_t>(token_max_bin(largest))];
  }
  return true;
}

InputStats finish(const Sums& sums, std::int64_t tokens) {
  InputStats stats;
  stats.absmax = sums.absmax;
  for (std::size_t k = 0; k < sums.absmax.size(); ++k) {
    // A square may leave float32 where the value does not.
    stats.mean_square.push_back(
        static_cast<float>(std::min(sums.square[k] / static_cast<double>(tokens), 3.4e38)));
    stats.mean_abs.push_back(static_cast<float>(sums.abs[k] / static_cast<double>(tokens)));
  }
  for (const double sum : sums.moment_total)
    stats.second_moment.push_back(
        static_cast<float>(std::clamp(sum / static_cast<double>(tokens), -3.4e38, 3.4e38)));
  stats.token_max_histogram = sums.histogram;
  const float largest = *std::ranges::max_element(sums.absmax);
  stats.global_absmax = largest > 0 ? largest : kZeroInputAbsmax;
  return stats;
}

void refuse_if_too_many(const Calibration& result, std::int64_t samples) {
  if (result.stats.dropped * 100 <= samples) return;
  std::string places;
  for (const auto& [name, count] : result.dropped_at)
    places += fmt::format("{}{} ({})", places.empty() ? "" : ", ", name, count);
  fail_input(
      "{} of {} calibration samples give NaN or infinite activations, first in {}, and at most 1 % may; "
      "check that the "
      "model's weights are whole and that it gives sensible text",
      result.stats.dropped, samples, places);
}

}  // namespace

int token_max_bin(float max) {
  if (!(max > 0.0f)) return 0;
  int exponent = 0;
  const float mantissa =
      2.0f * std::frexp(max, &exponent);  // max = mantissa * 2^(exponent - 1), mantissa in [1, 2)
  return std::clamp(64 + 2 * (exponent - 1) + (mantissa >= 1.5f ? 1 : 0), 0, kTokenMaxBins - 1);
}

std::int64_t second_moment_bytes(const ModelConfig& config) {
  const std::int64_t attended = config.heads * config.head_dim;
  return 12 * (config.layers * (2 * config.hidden * config.hidden + attended * attended +
                                config.intermediate * config.intermediate) +
               config.hidden * config.hidden);
}

Calibration calibrate(Model& model, const SampleSet& samples, const SampleOptions& options, ThreadPool& pool,
                      const std::function<void(const CalibrationProgress&)>& progress, bool second_moments) {
  Calibration result;
  result.stats.seq_len = options.seq_len;
  result.stats.seed = options.seed;
  std::map<std::string, Sums> total, sample;
  std::string bad;  // the first input of this sample that was not finite
  model.observe_inputs(
      [&](LinearInput input, std::int64_t layer, const float* x, std::int64_t rows, std::int64_t columns) {
        if (!bad.empty()) return;
        const std::string name = input_name(input, layer);
        Sums& sums = sample[name];
        if (!add(x, rows, columns, sums, pool))
          bad = name;
        else if (second_moments) {
          sums.moment.resize(static_cast<std::size_t>(columns * columns));
          second_moment(x, rows, columns, sums.moment.data(), pool);
        }
      });

  const auto count = static_cast<std::int64_t>(samples.size());
  KvCache cache(model.config(), static_cast<std::int64_t>(samples[0].size()));
  Array<float> hidden(static_cast<std::int64_t>(samples[0].size()) * model.config().hidden);
  try {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      for (auto& [name, sums] : sample) sums.clear();
      bad.clear();
      cache.clear();
      model.forward(samples[i], cache, hidden.data(), pool);
      if (bad.empty()) {
        for (const auto& [name, sums] : sample) total[name].merge(sums);
        ++result.stats.samples;
        result.stats.tokens += static_cast<std::int64_t>(samples[i].size());
      } else {
        ++result.stats.dropped;
        ++result.dropped_at[bad];
        refuse_if_too_many(result, count);
      }
      if (progress) progress({static_cast<std::int64_t>(i) + 1, count, result.stats.dropped});
    }
  } catch (...) {
    model.observe_inputs({});
    throw;
  }
  model.observe_inputs({});
  for (const auto& [name, sums] : total) {
    result.stats.inputs.emplace(name, finish(sums, result.stats.tokens));
    if (*std::ranges::max_element(sums.absmax) == 0.0f) result.zero_inputs.push_back(name);
  }
  return result;
}

}  // namespace halfbyte
