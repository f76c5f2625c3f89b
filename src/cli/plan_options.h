// How a model is to be quantized: the options that plan and quantize share, and the plan that they make.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "cli/calibration_text.h"
#include "core/thread_pool.h"
#include "model/config.h"
#include "quantize/plan_file.h"
#include "quantize/write.h"

namespace halfbyte::cli {

struct PlanSettings {
  const CLI::App* command = nullptr;  // that they were declared for: which of them were given
  std::string model, stats, plan;     // plan: a plan file instead of all that follows
  std::string format, activations = "bf16", global_scale = "pow2", mx_scale = "floor", scope = "tensor",
                      weight_scale = "fused";
  std::string method = "rtn", order, residual = "tau", residual_scale = "own", fold = "all", analysis;
  double alpha = 0.5, cap_percent = 10, bits_budget = 0;
  std::int64_t cap_channels = 512, hadamard_block = 0, outliers = 128, block_size = 0;
  bool double_quant = false, four_six = false, activation_search = false;
  std::string smooth_by = "absmax", rounding = "nearest", quality = "default";
  double damping = 0.01, match_output = 0;
  std::string damping_of = "each";
  CalibrationText text;
  SampleOptions samples{.samples = 32, .seq_len = 2048, .seed = 0};
  std::vector<std::string> keep{"lm_head"}, layer_formats;
};

// Declares them; with_plan: also --plan.
void add_plan_settings(CLI::App& command, PlanSettings& settings, bool with_plan);

// "PATTERN=FORMAT": that format for weights and, where activations are rounded, for them too where it has 8 bits.
FormatRule parse_rule(const PlanSettings& settings, const std::string& text);

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
