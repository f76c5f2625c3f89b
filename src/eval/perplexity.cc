#include "eval/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/fail.h"

namespace halfbyte {

namespace {

// Logits are made for so many positions at a time: 256 rows of 150,000 logits are 150 MB.
constexpr std::int64_t kLogitRows = 256;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What a run over all windows gathers of one model.
struct Tally {
  TokenScore window, total;
  PerplexityResult result;
};

void add(TokenScore& sum, const TokenScore& score) {
  sum.nll += score.nll;
  sum.kl += score.kl;
  sum.agreed += score.agreed;
}

// Hidden states of the whole window, logits chunk by chunk.
void score_window(std::span<Session* const> models, Session* reference, TokenWindow window,
                  std::vector<Tally>& tallies) {
  const auto run = [&](Session& session) {
    session.clear();
    session.forward(window);
  };
  if (reference) run(*reference);
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto start = Clock::now();
    run(*models[i]);
    tallies[i].window = {};
    tallies[i].result.seconds += seconds_since(start);
  }
  const auto predictions = static_cast<std::int64_t>(window.size()) - 1;
  std::vector<TokenScore> scores;
  for (std::int64_t first = 0; first < predictions; first += kLogitRows) {
    const std::int64_t rows = std::min(kLogitRows, predictions - first);
    const auto targets = window.subspan(static_cast<std::size_t>(first + 1), static_cast<std::size_t>(rows));
    scores.resize(targets.size());
    if (reference) reference->make_logits(first, rows);
    for (std::size_t i = 0; i < models.size(); ++i) {
      const auto start = Clock::now();
      models[i]->make_logits(first, rows);
      models[i]->score(targets, reference, scores);
      for (const TokenScore& score : scores) add(tallies[i].window, score);
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

std::int64_t longest_window(const std::vector<TokenWindow>& windows) {
  std::size_t longest = 0;
  for (const TokenWindow& window : windows) longest = std::max(longest, window.size());
  return static_cast<std::int64_t>(longest);
}

std::vector<PerplexityResult> evaluate_perplexity(
    std::span<Session* const> models, Session* reference, const std::vector<TokenWindow>& windows,
    Protocol protocol, const std::function<void(const PerplexityProgress&)>& progress) {
  const Session* const others[] = {reference, models[0]};
  for (const Session* model : models)
    for (const Session* other : others)
      if (other && other->config().vocab != model->config().vocab)
        fail_input(
            "the reference model has {} tokens, the model {}; only models of one vocabulary can be compared",
            other->config().vocab, model->config().vocab);

  std::vector<Tally> tallies(models.size());
  for (const TokenWindow& window : windows) {
    score_window(models, reference, window, tallies);
    const auto predictions = static_cast<std::int64_t>(window.size()) - 1;
    for (Tally& tally : tallies) {
      tally.result.nll_per_window.push_back(tally.window.nll / static_cast<double>(predictions));
      tally.result.tokens += predictions;
      add(tally.total, tally.window);
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
  const std::int64_t longest = longest_window(windows);
  const std::unique_ptr<Session> session = cpu_session(model, longest, pool);
  const std::unique_ptr<Session> other = reference ? cpu_session(*reference, longest, pool) : nullptr;
  Session* const models[] = {session.get()};
  return std::move(evaluate_perplexity(models, other.get(), windows, protocol, progress)[0]);
}

}  // namespace halfbyte
