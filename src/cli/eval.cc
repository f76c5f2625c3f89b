// halfbyte eval: perplexity of a model on a text, and its distance from a reference model.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/manifest.h"
#include "checkpoint/summary.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/fail.h"
#include "eval/perplexity.h"
#include "io/file.h"
#include "io/json.h"
#include "io/output.h"
#include "io/sha256.h"
#include "io/text.h"
#include "model/tokenizer.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::string model, text, protocol = "windows", reference, json;
  std::int64_t seq_len = 2048, windows = 0;
  int threads = 1;
};

Json to_json(const Options& options, const CheckpointSummary& model, const PerplexityResult& result,
             const ClippingCounts& clipping) {
  Json json = {{"model", options.model},
               {"weights", model.weights},
               {"activations", model.activations},
               {"bits_per_weight", model.bits_per_weight},
               {"model_bytes", model.bytes},
               {"text", options.text},
               {"perplexity", result.perplexity},
               {"stderr", result.stderr_ ? Json(*result.stderr_) : Json(nullptr)},
               {"nll_per_window", result.nll_per_window},
               {"tokens", result.tokens},
               {"windows", result.nll_per_window.size()},
               {"seq_len", options.seq_len},
               {"protocol", options.protocol},
               {"threads", options.threads},
               {"seconds", result.seconds}};
  if (!options.reference.empty()) json["reference"] = options.reference;
  if (clipping.values) json["clipping"] = {{"values", clipping.values}, {"clipped", clipping.clipped}};
  json["kl_mean"] = result.kl_mean ? Json(*result.kl_mean) : Json(nullptr);
  json["top1_agreement"] = result.top1_agreement ? Json(*result.top1_agreement) : Json(nullptr);
  return json;
}

Model load_model(const std::string& dir, ThreadPool& pool) {
  Model model = Model::load(dir, pool);
  for (const std::string& warning : model.warnings()) fmt::print(stderr, "warning: {}\n", warning);
  return model;
}

void run(const Options& options) {
  const Protocol protocol = protocol_from_name(options.protocol);
  const CheckpointSummary summary = summarize(Checkpoint(options.model));
  if (!options.json.empty()) {
    const std::filesystem::path inputs[] = {options.model, options.text, options.reference};
    check_output_file(options.json, inputs);
  }
  const Tokenizer tokenizer = Tokenizer::load(options.model);
  std::string text = read_text_file(options.text, std::int64_t{4} << 30);
  if (!is_utf8(text)) fail_input("{}: not UTF-8 text; convert it first", options.text);
  for (const std::string& sum : calibration_texts(options.model))
    if (sum == sha256(text))
      fmt::print(stderr, "note: {} was calibrated on this very text, so the figures flatter it\n",
                 options.model);
  if (protocol == Protocol::windows) text = join_rows(text);
  const std::vector<std::int32_t> ids = tokenizer.encode(text, protocol == Protocol::document);
  const auto windows = cut_windows(ids, protocol, options.seq_len, options.windows);

  ThreadPool pool(options.threads);
  Model model = load_model(options.model, pool);
  std::optional<Model> reference;
  if (!options.reference.empty()) reference.emplace(load_model(options.reference, pool));
  warn_beyond_context(model.config(), options.seq_len);
  PerplexityResult result;
  {
    Progress progress("evaluating", static_cast<std::int64_t>(windows.size()));
    result = evaluate_perplexity(model, reference ? &*reference : nullptr, windows, protocol, pool,
                                 [&](const PerplexityProgress& p) {
                                   progress.update(p.window, fmt::format("perplexity {:.4f}", p.perplexity));
                                 });
  }
  fmt::print("perplexity      {:.4f} {}\n", result.perplexity,
             result.stderr_ ? fmt::format("+- {:.4f}", *result.stderr_) : "(one window: no standard error)");
  if (result.kl_mean) fmt::print("KL divergence   {:.5f} nats a token\n", *result.kl_mean);
  if (result.top1_agreement) fmt::print("top-1 agreement {:.2f} %\n", 100 * *result.top1_agreement);
  if (const ClippingCounts& clipping = model.clipping(); clipping.values)
    fmt::print("clipped         {} of {} activation values lay beyond their static scale\n", clipping.clipped,
               clipping.values);
  fmt::print("scored          {} tokens in {} windows of {}, {:.1f} s\n", result.tokens,
             result.nll_per_window.size(), options.seq_len, result.seconds);
  // Two operations a parameter and token: the part of the work that any implementation must do, for both models.
  const std::int64_t parameters = model.parameters() + (reference ? reference->parameters() : 0);
  fmt::print("rate            {:.1f} GFLOP/s (2 x parameters x tokens)\n",
             2e-9 * static_cast<double>(parameters) * static_cast<double>(result.tokens) / result.seconds);
  if (!options.json.empty())
    write_text_file(options.json, dump_json(to_json(options, summary, result, model.clipping())));
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("eval", "Perplexity on a text; KL divergence and agreement with a reference model");
  command->add_option("model", options->model, "Model directory, plain or quantized")->required();
  command->add_option("--perplexity", options->text, "UTF-8 text file to score")->required();
  command
      ->add_option("--protocol", options->protocol,
                   "windows: lines joined by blank lines, whole windows scored alone; document: every token "
                   "scored once")
      ->capture_default_str();
  command->add_option("--seq-len", options->seq_len, "Tokens a window")->capture_default_str();
  command->add_option("--windows", options->windows, "Score only the first N windows (0: all)")
      ->capture_default_str();
  command->add_option("--reference", options->reference, "Model directory to compare predictions with");
  command->add_option("--json", options->json, "Write the result to this file");
  add_threads(*command, options->threads);
  command->footer(
      "Example:\n  halfbyte eval smollm2-nvfp4 --perplexity wiki.test.raw --windows 16 --reference smollm2 "
      "--json eval.json");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
