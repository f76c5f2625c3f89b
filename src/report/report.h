// The report of evaluations, analyses and checkpoints: which sections it has and what stands in them.
#pragma once

#include <string>
#include <vector>

#include "analyze/analysis.h"
#include "report/checkpoints.h"
#include "report/document.h"
#include "report/evals.h"

namespace halfbyte {

struct ReportInputs {
  std::vector<EvalRow> evals;
  std::vector<Analysis> analyses;
  std::vector<CheckpointCard> checkpoints;
  bool chain = false;  // the evaluations, in this order, each have one thing more than the one before
};

// Sections without data are left out. Throws bad_input where the evaluations make no chain but should.
Document make_report(const ReportInputs& inputs);

// A row a method and candidate format: median, mean and largest output error over all linears.
Table error_summary(const Analysis& analysis);

// The parts of make_report, each adding its sections.
void add_results(const ReportInputs& inputs, Document& document);  // results.cc: tables, perplexity, KL
void add_ingredients(const ReportInputs& inputs,
                     Document& document);  // ingredients.cc: what KL falls by along the chain
void add_diagnostics(const ReportInputs& inputs,
                     Document& document);  // diagnostics.cc: findings, S, errors by layer
void add_provenance(const ReportInputs& inputs,
                    Document& document);  // provenance.cc: bytes, times, sums, commands

}  // namespace halfbyte
