#include "quantize/bit_budget.h"

#include <algorithm>

#include "core/fail.h"

namespace halfbyte {

std::vector<std::size_t> choose_within_budget(std::span<const BudgetedLinear> linears, double bits) {
  std::vector<std::size_t> chosen;
  double weights = 0, used = 0;
  for (const BudgetedLinear& linear : linears) {
    const auto fewest = std::ranges::min_element(linear.choices, [](const BitChoice& a, const BitChoice& b) {
      return a.bits != b.bits ? a.bits < b.bits : a.error < b.error;
    });
    chosen.push_back(static_cast<std::size_t>(fewest - linear.choices.begin()));
    weights += static_cast<double>(linear.weights);
    used += static_cast<double>(linear.weights) * fewest->bits;
  }
  const double budget = bits * weights;
  if (used > budget)
    fail_input("--bits-budget is {:g} bits a weight, but the smallest formats take {:.3f}", bits,
               used / weights);

  for (;;) {
    std::size_t best_linear = linears.size(), best_choice = 0;
    double best_rate = 0, best_cost = 0;
    for (std::size_t l = 0; l < linears.size(); ++l) {
      const BitChoice& now = linears[l].choices[chosen[l]];
      for (std::size_t c = 0; c < linears[l].choices.size(); ++c) {
        const BitChoice& other = linears[l].choices[c];
        const double cost = static_cast<double>(linears[l].weights) * (other.bits - now.bits);
        const double saved = now.error - other.error;
        if (cost <= 0 || saved <= 0 || used + cost > budget) continue;
        const double rate = saved / cost;
        if (rate > best_rate || (rate == best_rate && best_linear == l && cost < best_cost)) {
          best_linear = l;
          best_choice = c;
          best_rate = rate;
          best_cost = cost;
        }
      }
    }
    if (best_linear == linears.size()) return chosen;
    chosen[best_linear] = best_choice;
    used += best_cost;
  }
}

}  // namespace halfbyte
