// halfbyte eval: perplexity of a model on a text, and its distance from a reference model.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/manifest.h"
#include "checkpoint/summary.h"
#include "cli/commands.h"
#include "cli/engine.h"
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
  std::vector<std::string> models;
  std::string text, protocol = "windows", reference, json;
  std::int64_t seq_len = 2048, windows = 0;
  DeviceOptions device;
  int threads = 1;
};

Json to_json(const Options& options, const std::string& name, const CheckpointSummary& model,
             const PerplexityResult& result, const ClippingCounts& clipping) {
  Json json = {{"model", name},
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
               {"device", options.device.device},
               {"threads", options.threads},
               {"seconds", result.seconds}};
  if (options.device.device == "cuda") json["arithmetic"] = options.device.arithmetic;
  if (!options.reference.empty()) json["reference"] = options.reference;
  if (clipping.values) json["clipping"] = {{"values", clipping.values}, {"clipped", clipping.clipped}};
  json["kl_mean"] = result.kl_mean ? Json(*result.kl_mean) : Json(nullptr);
  json["top1_agreement"] = result.top1_agreement ? Json(*result.top1_agreement) : Json(nullptr);
  return json;
}

std::string name_of(const std::string& dir) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(dir);
  return path.filename().string();
}

// Where the result of each model goes: the file itself for one, DIR/NAME.json for several.
std::vector<std::filesystem::path> result_files(const Options& options) {
  if (options.json.empty()) return {};
  if (options.models.size() == 1) return {options.json};
  if (!std::filesystem::is_directory(options.json))
    fail_input("{}: is no folder; for several models --json names an existing one, where each gets a file",
               options.json);
  std::vector<std::filesystem::path> files;
  for (const std::string& model : options.models) {
    files.push_back(std::filesystem::path(options.json) / (name_of(model) + ".json"));
    if (std::ranges::count(files, files.back()) > 1)
      fail_input("{}: two models would write it; folders of different names are needed",
                 files.back().string());
  }
  return files;
}

void print_result(const Options& options, const PerplexityResult& result, const Engine& model) {
  fmt::print("perplexity      {:.4f} {}\n", result.perplexity,
             result.stderr_ ? fmt::format("+- {:.4f}", *result.stderr_) : "(one window: no standard error)");
  if (result.kl_mean) fmt::print("KL divergence   {:.5f} nats a token\n", *result.kl_mean);
  if (result.top1_agreement) fmt::print("top-1 agreement {:.2f} %\n", 100 * *result.top1_agreement);
  if (const ClippingCounts clipping = model.clipping(); clipping.values)
    fmt::print("clipped         {} of {} activation values lay beyond their static scale\n", clipping.clipped,
               clipping.values);
  // Two operations a parameter and token: the part of the work that any implementation must do.
  fmt::print(
      "scored          {} tokens in {} windows of {}, {:.1f} s, {:.1f} GFLOP/s (2 x parameters x tokens)\n",
      result.tokens, result.nll_per_window.size(), options.seq_len, result.seconds,
      2e-9 * static_cast<double>(model.parameters()) * static_cast<double>(result.tokens) / result.seconds);
}

void run(const Options& options) {
  const Protocol protocol = protocol_from_name(options.protocol);
  std::vector<CheckpointSummary> summaries;
  std::vector<std::filesystem::path> inputs{options.text, options.reference};
  for (const std::string& model : options.models) {
    summaries.push_back(summarize(Checkpoint(model)));
    inputs.emplace_back(model);
  }
  const std::vector<std::filesystem::path> files = result_files(options);
  for (const std::filesystem::path& file : files) check_output_file(file, inputs);
  const Tokenizer tokenizer = Tokenizer::load(options.models[0]);
  std::string text = read_text_file(options.text, std::int64_t{4} << 30);
  if (!is_utf8(text)) fail_input("{}: not UTF-8 text; convert it first", options.text);
  const std::string sum = sha256(text);
  for (const std::string& model : options.models)
    if (std::ranges::count(calibration_texts(model), sum))
      fmt::print(stderr, "note: {} was calibrated on this very text, so the figures flatter it\n", model);
  if (protocol == Protocol::windows) text = join_rows(text);
  const std::vector<std::int32_t> ids = tokenizer.encode(text, protocol == Protocol::document);
  std::vector<std::string> others(options.models.begin() + 1, options.models.end());
  if (!options.reference.empty()) others.push_back(options.reference);
  for (const std::string& other : others)
    if (Tokenizer::load(other).encode(text, protocol == Protocol::document) != ids)
      fail_input("{} and {} cut the text into different tokens; only models of one tokenizer can be compared",
                 options.models[0], other);
  const auto windows = cut_windows(ids, protocol, options.seq_len, options.windows);

  ThreadPool pool(options.threads);
  const std::int64_t longest = longest_window(windows);
  std::vector<std::unique_ptr<Engine>> models;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> pointers;
  for (const std::string& dir : options.models) {
    models.push_back(load_engine(options.device, dir, pool));
    sessions.push_back(models.back()->session(longest));
    pointers.push_back(sessions.back().get());
  }
  std::unique_ptr<Engine> reference;
  std::unique_ptr<Session> reference_session;
  if (!options.reference.empty()) {
    reference = load_engine(options.device, options.reference, pool);
    reference_session = reference->session(longest);
  }
  warn_beyond_context(models[0]->config(), options.seq_len);
  std::vector<PerplexityResult> results;
  {
    Progress progress("evaluating", static_cast<std::int64_t>(windows.size()));
    results = evaluate_perplexity(pointers, reference_session.get(), windows, protocol,
                                  [&](const PerplexityProgress& p) {
                                    progress.update(p.window, fmt::format("perplexity {:.4f}", p.perplexity));
                                  });
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results.size() > 1) fmt::print("{}{}\n", i ? "\n" : "", options.models[i]);
    print_result(options, results[i], *models[i]);
    if (!files.empty())
      write_text_file(files[i], dump_json(to_json(options, options.models[i], summaries[i], results[i],
                                                  models[i]->clipping())));
  }
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("eval", "Perplexity on a text; KL divergence and agreement with a reference model");
  command
      ->add_option(
          "model", options->models,
          "Model directories, plain or quantized; several of one tokenizer share the reference's work")
      ->required();
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
  command->add_option("--json", options->json,
                      "Write the result to this file; with several models, to NAME.json in this folder");
  add_device(*command, options->device, "f32");
  add_threads(*command, options->threads);
  command->footer(
      "Example:\n  halfbyte eval smollm2-nvfp4 --perplexity wiki.test.raw --windows 16 --reference smollm2 "
      "--json eval.json");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
