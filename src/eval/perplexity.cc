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

Sums score_window(Scorer& scorer, Scorer* reference, TokenWindow window, std::int64_t vocab,
                  ThreadPool& pool) {
  scorer.run(window, pool);
  if (reference) reference->run(window, pool);
  Sums sums;
  const auto predictions = static_cast<std::int64_t>(window.size()) - 1;
  for (std::int64_t first = 0; first < predictions; first += kLogitRows) {
    const std::int64_t rows = std::min(kLogitRows, predictions - first);
    const float* logits = scorer.logits(first, rows, pool);
    const float* reference_logits = reference ? reference->logits(first, rows, pool) : nullptr;
    std::vector<Sums> row_sums(static_cast<std::size_t>(rows));
    pool.parallel_for(rows, [&](std::int64_t r) {
      Sums& row = row_sums[static_cast<std::size_t>(r)];
      const float* q = logits + r * vocab;
      const double q_lse = log_sum_exp(q, vocab);
      row.nll = q_lse - static_cast<double>(q[window[static_cast<std::size_t>(first + r + 1)]]);
      if (reference_logits) {
        const float* p = reference_logits + r * vocab;
        row.kl = kl_divergence(p, log_sum_exp(p, vocab), q, q_lse, vocab);
        row.agreed = row_argmax(p, vocab) == row_argmax(q, vocab) ? 1 : 0;
      }
    });
    for (const Sums& row : row_sums) {
      sums.nll += row.nll;
      sums.kl += row.kl;
      sums.agreed += row.agreed;
    }
  }
  return sums;
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

PerplexityResult evaluate_perplexity(Model& model, Model* reference, const std::vector<TokenWindow>& windows,
                                     Protocol protocol, ThreadPool& pool,
                                     const std::function<void(const PerplexityProgress&)>& progress) {
  const std::int64_t vocab = model.config().vocab;
  if (reference && reference->config().vocab != vocab)
    fail_input(
        "the reference model has {} tokens, the model {}; only models of one vocabulary can be compared",
        reference->config().vocab, vocab);
  std::size_t longest = 0;
  for (const TokenWindow& window : windows) longest = std::max(longest, window.size());

  const auto start = std::chrono::steady_clock::now();
  Scorer scorer(model, static_cast<std::int64_t>(longest));
  std::optional<Scorer> reference_scorer;
  if (reference) reference_scorer.emplace(*reference, static_cast<std::int64_t>(longest));
  PerplexityResult result;
  Sums total;
  for (const TokenWindow& window : windows) {
    const Sums sums =
        score_window(scorer, reference_scorer ? &*reference_scorer : nullptr, window, vocab, pool);
    const auto predictions = static_cast<std::int64_t>(window.size()) - 1;
    result.nll_per_window.push_back(sums.nll / static_cast<double>(predictions));
    result.tokens += predictions;
    total.nll += sums.nll;
    total.kl += sums.kl;
    total.agreed += sums.agreed;
    const double nll = protocol == Protocol::windows ? mean(result.nll_per_window)
                                                     : total.nll / static_cast<double>(result.tokens);
    result.perplexity = std::exp(nll);
    if (progress)
      progress({static_cast<std::int64_t>(result.nll_per_window.size()),
                static_cast<std::int64_t>(windows.size()), result.perplexity});
  }
  if (result.nll_per_window.size() > 1)
    result.stderr_ = result.perplexity * standard_error(result.nll_per_window);
  if (reference) {
    result.kl_mean = total.kl / static_cast<double>(result.tokens);
    result.top1_agreement = total.agreed / static_cast<double>(result.tokens);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace halfbyte
