// Perplexity of a model over token windows, and how far its predictions are from a reference model's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "eval/text.h"
#include "model/model.h"
#include "model/session.h"

namespace halfbyte {

struct PerplexityResult {
  double perplexity =
      0;  // exp of the mean: of the window means (windows protocol), of all predictions (document)
  std::optional<double> stderr_;  // standard error of perplexity, from the spread of two or more window means
  std::vector<double> nll_per_window;    // mean of -log p over the window's predictions, nats
  std::int64_t tokens = 0;               // predictions scored
  std::optional<double> kl_mean;         // mean KL(reference || model) over all predictions, nats a token
  std::optional<double> top1_agreement;  // share of predictions whose most likely token is the reference's
  double seconds = 0;                    // of this model's part alone
};

struct PerplexityProgress {
  std::int64_t window = 0, windows = 0;
  double perplexity = 0;  // of the first model so far
};

// Tokens of the longest window: the capacity that sessions need.
std::int64_t longest_window(const std::vector<TokenWindow>& windows);

// Scores every window from an empty cache, model after model. The reference model, when given, sees the same windows, once
// for all models; all must have the same vocabulary and lie on one device. progress is called after each window.
std::vector<PerplexityResult> evaluate_perplexity(
    std::span<Session* const> models, Session* reference, const std::vector<TokenWindow>& windows,
    Protocol protocol, const std::function<void(const PerplexityProgress&)>& progress = {});
// The same for one model on the CPU.
PerplexityResult evaluate_perplexity(Model& model, Model* reference, const std::vector<TokenWindow>& windows,
                                     Protocol protocol, ThreadPool& pool,
                                     const std::function<void(const PerplexityProgress&)>& progress = {});

}  // namespace halfbyte
