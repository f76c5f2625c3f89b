#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/fail.h"
#include "ops/row_math/op.h"

namespace halfbyte {

Sampler::Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    fail_input("temperature is {}, expected 0 (greedy) or more", options.temperature);
  if (options.top_k < 0) fail_input("top-k is {}, expected 0 (all) or more", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1))
    fail_input("top-p is {}, expected above 0 and at most 1", options.top_p);
}

std::int32_t Sampler::next(const float* logits, std::int64_t vocab) {
  if (options_.temperature == 0) return static_cast<std::int32_t>(row_argmax(logits, vocab));

  struct Candidate {
    double weight;
    std::int32_t id;
  };
  const double largest = static_cast<double>(row_max(logits, vocab));
  std::vector<Candidate> candidates(static_cast<std::size_t>(vocab));
  for (std::int64_t i = 0; i < vocab; ++i)
    candidates[static_cast<std::size_t>(i)] = {
        std::exp((static_cast<double>(logits[i]) - largest) / options_.temperature),
        static_cast<std::int32_t>(i)};
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  });
  if (options_.top_k > 0 && options_.top_k < vocab)
    candidates.resize(static_cast<std::size_t>(options_.top_k));
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  if (options_.top_p < 1) {
    double reached = 0;
    std::size_t kept = 0;
    while (kept < candidates.size() && reached < options_.top_p * total) reached += candidates[kept++].weight;
    candidates.resize(std::max<std::size_t>(kept, 1));
    total = reached;
  }
  // 53 random bits, so that the draw does not depend on the library's distribution classes.
  double draw = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
  for (const Candidate& candidate : candidates)
    if ((draw -= candidate.weight) < 0) return candidate.id;
  return candidates.back().id;
}

}  // namespace halfbyte
