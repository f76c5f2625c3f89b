// halfbyte generate: continue a prompt or answer a chat message, token by token.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "cli/commands.h"
#include "cli/engine.h"
#include "cli/options.h"
#include "core/fail.h"
#include "model/chat_template.h"
#include "model/sampler.h"
#include "model/tokenizer.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::string model, prompt, system;
  bool raw = false, quiet = false;
  std::int64_t max_tokens = 128;
  SamplingOptions sampling;
  DeviceOptions device;
  int threads = 1;
};

std::vector<std::int32_t> prompt_ids(const Options& options, const Tokenizer& tokenizer) {
  if (options.raw) return tokenizer.encode(options.prompt, true);
  const std::optional<std::string> chat_template = tokenizer.chat_template();
  if (!chat_template)
    fail_input("{}: the tokenizer has no chat template; use --raw to continue the prompt as plain text",
               options.model);
  std::vector<Message> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", options.prompt});
  // The template writes BOS itself where the model wants it.
  const TokenizerConfig& config = tokenizer.config();
  return tokenizer.encode(render_chat(*chat_template, messages,
                                      {.bos_token = config.bos_token.value_or(""),
                                       .eos_token = config.eos_token.value_or(""),
                                       .flags = {}}),
                          false);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What the speed was measured with.
std::string device_note(const DeviceOptions& device) {
  if (device.device == "cpu") return "";
  return fmt::format(" (CUDA, {}, {})", device.arithmetic,
                     device.no_graph ? "no graph" : "one graph a token");
}

void run(const Options& options) {
  constexpr std::int64_t kMostTokens = 1 << 24;
  if (options.max_tokens < 1 || options.max_tokens > kMostTokens)
    fail_input("--max-tokens is {}, expected 1 to {}", options.max_tokens, kMostTokens);
  Sampler sampler(options.sampling);
  const Checkpoint checkpoint(options.model);  // a path that is no model is refused in its own words
  const Tokenizer tokenizer = Tokenizer::load(options.model);
  const std::vector<std::int32_t> ids = prompt_ids(options, tokenizer);
  if (ids.empty()) fail_input("the prompt is empty");
  ThreadPool pool(options.threads);
  const std::unique_ptr<Engine> model = load_engine(options.device, options.model, pool);
  const ModelConfig& config = model->config();

  // Rows of the head beyond the tokenizer's vocabulary are padding that stands for no text: never sampled.
  const std::int64_t vocab = std::min<std::int64_t>(config.vocab, tokenizer.vocab_size());
  const auto prompt_size = static_cast<std::int64_t>(ids.size());
  warn_beyond_context(config, prompt_size + options.max_tokens);
  const std::unique_ptr<Session> session = model->session(prompt_size + options.max_tokens);
  std::vector<float> logits(static_cast<std::size_t>(config.vocab));
  const auto choose = [&](std::int64_t row) {
    session->make_logits(row, 1);
    if (options.sampling.temperature == 0) return session->most_likely(vocab);
    session->copy_logits(logits);
    return sampler.next(logits.data(), vocab);
  };
  const auto start = std::chrono::steady_clock::now();
  session->forward(ids);
  std::int32_t next = choose(prompt_size - 1);
  const double prompt_seconds = seconds_since(start);

  TokenStream decoder(tokenizer);
  std::int64_t generated = 1;
  // The first of these passes loads and captures what the others run.
  std::chrono::steady_clock::time_point steady;
  while (std::find(config.eos.begin(), config.eos.end(), next) == config.eos.end()) {
    fmt::print("{}", decoder.push(next));
    std::fflush(stdout);
    if (generated == options.max_tokens) break;
    session->forward({&next, 1});
    next = choose(0);
    if (++generated == 2) steady = std::chrono::steady_clock::now();
  }
  const double seconds = generated > 2 ? seconds_since(steady) : 0;
  fmt::print("{}\n", decoder.finish());
  std::fflush(stdout);
  if (!options.quiet) {
    fmt::print(stderr, "prompt {} tokens, {:.1f} a second; generated {} tokens", prompt_size,
               static_cast<double>(prompt_size) / prompt_seconds, generated);
    if (generated > 2) fmt::print(stderr, ", {:.1f} a second", static_cast<double>(generated - 2) / seconds);
    fmt::print(stderr, "{}\n", device_note(options.device));
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("generate", "Answer a message or continue a text");
  command->add_option("model", options->model, "Model directory, plain or quantized")->required();
  command->add_option("-p,--prompt", options->prompt, "The message, or with --raw the text to continue")
      ->required();
  command->add_option("--system", options->system, "A system message before it");
  command->add_flag("--raw", options->raw, "Continue the prompt as it is, without the chat template");
  command->add_option("-n,--max-tokens", options->max_tokens, "Tokens to generate at most")
      ->capture_default_str();
  command->add_option("--temperature", options->sampling.temperature, "0: always the most likely token")
      ->capture_default_str();
  command->add_option("--top-k", options->sampling.top_k, "Choose among the k most likely (0: all)")
      ->capture_default_str();
  command
      ->add_option("--top-p", options->sampling.top_p, "Choose among the fewest that reach this probability")
      ->capture_default_str();
  command->add_option("--seed", options->sampling.seed, "Of the random choices")->capture_default_str();
  command->add_flag("--quiet", options->quiet, "No speed line at the end");
  add_device(*command, options->device, "f16");
  add_threads(*command, options->threads);
  command->footer(
      "Examples:\n  halfbyte generate smollm2-nvfp4 -p \"What is gravity?\"\n"
      "  halfbyte generate smollm2 --raw -p \"Once upon a time\" --temperature 0.8 --top-p 0.95 --seed 1");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
