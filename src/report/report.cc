#include "report/report.h"

#include <fmt/core.h>

namespace halfbyte {

namespace {

std::string counted(std::size_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

}  // namespace

Document make_report(const ReportInputs& inputs) {
  Document document{.title = "Quantized models compared", .subtitle = "", .sections = {}};
  const auto add = [&](const std::string& part) {
    document.subtitle += (document.subtitle.empty() ? "" : ", ") + part;
  };
  if (!inputs.evals.empty()) add(counted(inputs.evals.size(), "evaluation", "evaluations"));
  if (!inputs.analyses.empty()) add(counted(inputs.analyses.size(), "analysis", "analyses"));
  if (!inputs.checkpoints.empty()) add(counted(inputs.checkpoints.size(), "checkpoint", "checkpoints"));
  add_results(inputs, document);
  add_ingredients(inputs, document);
  add_diagnostics(inputs, document);
  add_provenance(inputs, document);
  return document;
}

}  // namespace halfbyte
