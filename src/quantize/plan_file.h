// plan.json: a plan as text that people read and change before it is carried out (docs/files.md).
#pragma once

#include <span>
#include <string>

#include "io/json.h"
#include "quantize/plan.h"

namespace halfbyte {

// What a plan was made from; it is only carried out on that.
struct PlanOrigin {
  std::string model;                                // model_fingerprint
  std::string stats;                                // SHA-256 of the statistics, or empty
  std::vector<std::string> calibration_texts = {};  // SHA-256 of the files that these are of
};

std::string plan_text(const QuantizePlan& plan, const PlanOrigin& origin);

struct PlanFile {
  QuantizePlan plan;
  PlanOrigin origin;
};

// Reads a plan and checks it against the model: every tensor once, formats and methods that go together, columns that exist,
// scales that a producer can take in. Members it does not know are refused.
// `residual` and `order` of an input may be changed by hand: its columns are made from them and `ranking`. Throws bad_input
// naming file, place, what was found and what was expected.
PlanFile parse_plan(const Json& json, const std::string& file, const Checkpoint& checkpoint,
                    std::span<const LinearSource> linears, const Producers& producers = {});

}  // namespace halfbyte
