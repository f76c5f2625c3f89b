// --bits-budget: formats from measured errors before a plan is made, and the plan's size after.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/plan_options.h"

namespace halfbyte::cli {

// What each linear is to be rounded to so that the errors an analysis measured are small under the budget.
std::vector<FormatRule> rules_of_budget(const PlanSettings& settings, std::span<const LinearSource> sources,
                                        const Checkpoint& checkpoint);

// Throws where the plan takes more bits a weight than the budget: residual channels, outliers and --layer-format come on top
// of the formats that were chosen for it.
void check_budget(const PlanSettings& settings, const Checkpoint& checkpoint, const QuantizePlan& plan,
                  std::span<const LinearSource> sources);

}  // namespace halfbyte::cli
