#include "eval/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/fail.h"
#include "ops/row_math/op.h"

namespace halfbyte {

namespace {

// Logits are made for so many positions at a time: 256 rows of 150,000 logits are 150 MB.
constexpr std::int64_t kLogitRows = 256;

struct Sums {
  double nll = 0, kl = 0, agreed = 0;
  void add(const Sums& other) {
    nll += other.nll;
    kl += other.kl;
    agreed += other.agreed;
  }
};

// One model's part in the scoring of a window: hidden states of the whole window, logits chunk by chunk.
class Scorer {
 public:
  Scorer(Model& model, std::int64_t longest)
      : model_(model), cache_(model.config(), longest), hidden_(longest * model.config().hidden) {}

  void run(TokenWindow window, ThreadPool& pool) {
    cache_.clear();
    model_.forward(window, cache_, hidden_.data(), pool);
  }
  // [rows, vocab] of the window's positions from first on.
  const float* logits(std::int64_t first, std::int64_t rows, ThreadPool& pool) {
    if (logits_.size() == 0) logits_ = Array<float>(kLogitRows * model_.config().vocab);
    model_.logits(hidden_.data() + first * model_.config().hidden, rows, logits_.data(), pool);
    return logits_.data();
  }

 private:
  Model& model_;
  KvCache cache_;
  Array<float> hidden_, logits_;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What a run over all windows gathers of one model.
struct Tally {
  Sums window, total;
  PerplexityResult result;
};

// Adds the predictions of rows [first, first + rows) of the window.
void score_rows(const float* logits, const float* reference, TokenWindow window, std::int64_t first,
                std::int64_t rows, std::int64_t vocab, Sums& sums, ThreadPool& pool) {
  std::vector<Sums> row_sums(static_cast<std::size_t>(rows));
  pool.parallel_for(rows, [&](std::int64_t r) {
    Sums& row = row_sums[static_cast<std::size_t>(r)];
    const float* q = logits + r * vocab;
    const double q_lse = log_sum_exp(q, vocab);
    row.nll = q_lse - static_cast<double>(q[window[static_cast<std::size_t>(first + r + 1)]]);
    if (reference) {
      const float* p = reference + r * vocab;
      row.kl = kl_divergence(p, log_sum_exp(p, vocab), q, q_lse, vocab);
      row.agreed = row_argmax(p, vocab) == row_argmax(q, vocab) ? 1 : 0;
    }
  });
  for (const Sums& row : row_sums) sums.add(row);
}

void score_window(std::vector<Scorer>& scorers, Scorer* reference, TokenWindow window, std::int64_t vocab,
                  std::vector<Tally>& tallies, ThreadPool& pool) {
  if (reference) reference->run(window, pool);
  for (std::size_t i = 0; i < scorers.size(); ++i) {
    const auto start = Clock::now();
    scorers[i].run(window, pool);
    tallies[i].window = {};
    tallies[i].result.seconds += seconds_since(start);
  }
  const auto predictions = static_cast<std::int64_t>(window.size()) - 1;
  for (std::int64_t first = 0; first < predictions; first += kLogitRows) {
    const std::int64_t rows = std::min(kLogitRows, predictions - first);
    const float* reference_logits = reference ? reference->logits(first, rows, pool) : nullptr;
    for (std::size_t i = 0; i < scorers.size(); ++i) {
      const auto start = Clock::now();
      score_rows(scorers[i].logits(first, rows, pool), reference_logits, window, first, rows, vocab,
                 tallies[i].window, pool);
      tallies[i].result.seconds += seconds_since(start);
    }
  }
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Standard error of the mean of two or more values, of which each counts alike.
double standard_error(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double centre = mean(values);
  double squares = 0;
  for (double value : values) squares += (value - centre) * (value - centre);
  return std::sqrt(squares / (n - 1) / n);
}

}  // namespace

std::vector<PerplexityResult> evaluate_perplexity(
    std::span<Model* const> models, Model* reference, const std::vector<TokenWindow>& windows,
    Protocol protocol, ThreadPool& pool, const std::function<void(const PerplexityProgress&)>& progress) {
  const std::int64_t vocab = models[0]->config().vocab;
  std::size_t longest = 0;
  for (const TokenWindow& window : windows) longest = std::max(longest, window.size());
  std::vector<Scorer> scorers;
  for (Model* model : models) {
    for (const Model* other : {reference, models[0]})
      if (other && other->config().vocab != model->config().vocab)
        fail_input(
            "the reference model has {} tokens, the model {}; only models of one vocabulary can be compared",
            other->config().vocab, model->config().vocab);
    scorers.emplace_back(*model, static_cast<std::int64_t>(longest));
  }
  std::optional<Scorer> reference_scorer;
  if (reference) reference_scorer.emplace(*reference, static_cast<std::int64_t>(longest));

  std::vector<Tally> tallies(models.size());
  for (const TokenWindow& window : windows) {
    score_window(scorers, reference_scorer ? &*reference_scorer : nullptr, window, vocab, tallies, pool);
    const auto predictions = static_cast<std::int64_t>(window.size()) - 1;
    for (Tally& tally : tallies) {
      tally.result.nll_per_window.push_back(tally.window.nll / static_cast<double>(predictions));
      tally.result.tokens += predictions;
      tally.total.add(tally.window);
      const double nll = protocol == Protocol::windows
                             ? mean(tally.result.nll_per_window)
                             : tally.total.nll / static_cast<double>(tally.result.tokens);
      tally.result.perplexity = std::exp(nll);
    }
    if (progress)
      progress({static_cast<std::int64_t>(tallies[0].result.nll_per_window.size()),
                static_cast<std::int64_t>(windows.size()), tallies[0].result.perplexity});
  }
  std::vector<PerplexityResult> results;
  for (Tally& tally : tallies) {
    PerplexityResult& result = tally.result;
    if (result.nll_per_window.size() > 1)
      result.stderr_ = result.perplexity * standard_error(result.nll_per_window);
    if (reference) {
      result.kl_mean = tally.total.kl / static_cast<double>(result.tokens);
      result.top1_agreement = tally.total.agreed / static_cast<double>(result.tokens);
    }
    results.push_back(std::move(result));
  }
  return results;
}

PerplexityResult evaluate_perplexity(Model& model, Model* reference, const std::vector<TokenWindow>& windows,
                                     Protocol protocol, ThreadPool& pool,
                                     const std::function<void(const PerplexityProgress&)>& progress) {
  Model* const models[] = {&model};
  return std::move(evaluate_perplexity(models, reference, windows, protocol, pool, progress)[0]);
}

}  // namespace halfbyte
