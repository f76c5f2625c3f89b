// What an analysis says in words: the troubleshooting flow of docs/tuning.md applied to its figures.
#pragma once

#include <string>
#include <vector>

#include "analyze/analysis.h"

namespace halfbyte {

// One sentence a finding, general ones first: calibration against this text, sizes of S, clipping, the bound, which methods
// help, weights against activations, then the linears that stand out and what to do about them.
std::vector<std::string> find_in_words(const Analysis& analysis);

}  // namespace halfbyte
