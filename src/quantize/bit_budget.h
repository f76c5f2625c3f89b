// Formats for every linear under a budget of bits: more bits go where they take most of the measured error away.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace halfbyte {

struct BitChoice {
  double bits = 0;   // a weight
  double error = 0;  // of the linear's output, relative; of all linears these are added
};

struct BudgetedLinear {
  std::string name;
  std::int64_t weights = 0;
  std::vector<BitChoice> choices;  // at least one, in any order
};

// One of the choices of every linear, by index, so that the bits of all weights together are at most `bits` a weight on
// average. Begins with the fewest bits everywhere (of equals the smaller error) and then takes, one after the other, the change
// that saves most error for each bit it costs, as long as it fits; ties go to the earlier linear, then the fewer bits. Throws
// bad_input where even the fewest bits are more than the budget.
std::vector<std::size_t> choose_within_budget(std::span<const BudgetedLinear> linears, double bits);

}  // namespace halfbyte
