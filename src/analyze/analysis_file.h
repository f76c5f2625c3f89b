// analysis.json: Analysis on disk (docs/report.md), read strictly.
#pragma once

#include <string>

#include "analyze/analysis.h"
#include "io/json.h"

namespace halfbyte {

inline constexpr int kAnalysisVersion = 1;

Json to_json(const Analysis& analysis);

// Whether a JSON file is one of ours by its first member, "halfbyte_analysis".
bool is_analysis(const Json& json);

// Throws bad_input naming file and key for anything missing, of another type or out of range.
Analysis parse_analysis(const Json& json, const std::string& file);

}  // namespace halfbyte
