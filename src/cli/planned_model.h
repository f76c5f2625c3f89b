// A model and the plan that options or a plan file make for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/samples.h"
#include "checkpoint/manifest.h"
#include "cli/plan_options.h"
#include "core/thread_pool.h"
#include "model/config.h"
#include "quantize/plan_file.h"
#include "quantize/write.h"

namespace halfbyte::cli {

struct PlannedModel {
  PlannedModel(const PlanSettings& settings, ThreadPool& pool);

  Checkpoint checkpoint;
  ModelConfig config;
  QuantizePlan plan;
  std::vector<LinearSource> sources;
  Producers producers;
  PlanOrigin origin;
  std::string text;                  // of the plan as a file
  std::optional<SampleSet> samples;  // that error feedback runs over
  std::string plan_file;             // that it was read from, or empty

  // What chooses the weights' codes; null: to nearest. Lives no longer than this object.
  std::unique_ptr<WeightRounder> rounder(ThreadPool& pool) const;
  RunRecord record() const;  // of carrying it out
};

// Prints what is planned, an input and a kind of tensor a line.
void print_plan(const QuantizePlan& plan);

}  // namespace halfbyte::cli
