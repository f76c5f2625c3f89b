// Inputs of a report with something in every section, for the tests that look at whole reports.
#pragma once

#include <cmath>
#include <string>

#include "report/report.h"

namespace halfbyte::test {

// evil: put into every string that could come from a file.
inline ReportInputs sample_inputs(const std::string& evil = "") {
  ReportInputs inputs;
  const auto eval = [&](const char* name, double bits, double perplexity, std::optional<double> kl) {
    EvalRow row;
    row.model = "out/" + (name + evil);
    row.weights = name + evil;
    row.activations = "float" + evil;
    row.bits_per_weight = bits;
    row.megabytes = 100 + bits;
    row.perplexity = perplexity;
    row.stderr_ = 0.5;
    row.kl_mean = kl;
    row.top1_agreement = kl ? std::optional(0.7) : std::nullopt;
    row.text = "news" + evil + ".txt";
    row.protocol = "windows";
    row.windows = 3;
    row.seq_len = 2048;
    row.tokens = 6141;
    row.seconds = 12.5;
    row.threads = 2;
    if (kl) row.reference = "out/bf16" + evil;
    inputs.evals.push_back(row);
  };
  eval("bf16", 16, 27.7, std::nullopt);
  eval("nvfp4", 4.5, 43.8, 0.48);
  eval("arc", 4.9, 36.2, 0.31);

  Analysis analysis;
  analysis.command = {"halfbyte", "analyze", "out/bf16" + evil, "--text", "news" + evil + ".txt"};
  analysis.model = "out/bf16" + evil;
  analysis.stats = "stats" + evil + ".safetensors";
  analysis.format = "nvfp4 amax" + evil;
  analysis.texts = {"news" + evil + ".txt"};
  analysis.windows = 4, analysis.seq_len = 512, analysis.tokens = 2048;
  analysis.residual_rule = "tau=3";
  analysis.methods = {"rtn", "arc"};
  analysis.formats = {"nvfp4", "bf16"};
  analysis.findings = {"layer 1 down_proj: S capped at 10 %, 3.1x the median error" + evil};
  for (int layer = 0; layer < 3; ++layer) {
    for (const char* part : {"attention", "mlp_product"}) {
      InputAnalysis input;
      input.name = "model.layers." + std::to_string(layer) + "." + part + evil;
      input.layer = layer;
      input.channels = 576;
      input.absmax = input.calibrated_absmax = 12;
      input.above_tau = 0.2;
      input.residual = 48;
      input.capped = layer == 1;
      input.clipped = layer;
      input.rtn.emplace(), input.before.emplace(), input.after.emplace();
      for (std::size_t i = 0; i < kErrorBins; ++i) {
        (*input.rtn)[i] = static_cast<std::int64_t>(1e6 * std::exp(-std::abs(static_cast<double>(i) - 16)));
        (*input.before)[i] = 2 * (*input.rtn)[i];
        (*input.after)[i] = (*input.rtn)[i] / 3;
      }
      input.bound.emplace();
      input.bound->values = input.bound->guaranteed = 1000;
      input.bound->largest_share = 0.4;
      input.bound->mxfp8_largest_share = 0.5;
      analysis.inputs.push_back(input);
    }
    for (const char* part : {"self_attn.q_proj", "mlp.down_proj"}) {
      LinearAnalysis linear;
      linear.name = "model.layers." + std::to_string(layer) + "." + part + evil;
      linear.input = analysis.inputs.back().name;
      linear.layer = layer;
      linear.out = linear.in = 576;
      linear.output_square = 10;
      linear.methods = {{"rtn", {0.02 + 0.01 * layer, 0.01}}, {"arc", {0.01, 0.01}}};
      linear.formats = {{"nvfp4", {{0.02, 0.01}, 4.5}}, {"bf16", {{0, 0}, 16}}};
      analysis.linears.push_back(linear);
    }
  }
  inputs.analyses.push_back(analysis);

  for (const char* name : {"bf16", "nvfp4"}) {
    CheckpointCard card;
    card.dir = "out/" + (name + evil);
    card.weights = name + evil;
    card.activations = "float" + evil;
    card.bits_per_weight = 4.5;
    card.precisions = {{"BF16" + evil, 60, 28000000, 56000000}, {"nvfp4" + evil, 210, 106000000, 60000000}};
    card.tool = "halfbyte 0.1.0" + evil;
    card.options = {{"format" + evil, "nvfp4" + evil}};
    card.checksums = {{"model.safetensors" + evil, std::string(64, 'a') + evil}};
    inputs.checkpoints.push_back(card);
  }
  return inputs;
}

}  // namespace halfbyte::test
