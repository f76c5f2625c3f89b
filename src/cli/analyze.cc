// halfbyte analyze: what methods and formats would do to a model's linears on real inputs, as figures and findings.
#include "analyze/analyze.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "analyze/analysis_file.h"
#include "calibrate/samples.h"
#include "calibrate/stats_file.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/fail.h"
#include "io/mapped_file.h"
#include "io/output.h"
#include "io/sha256.h"
#include "io/text.h"
#include "model/tokenizer.h"
#include "report/report.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::string model, stats, out, format = "nvfp4", global_scale = "pow2", mx_scale = "floor";
  std::vector<std::string> texts, methods{"rtn", "arc", "smoothquant", "hadamard"},
      formats{"nvfp4", "mxfp4", "mxfp8", "bf16"}, keep{"lm_head"};
  std::string residual = "tau=3", order = "absmax";
  double alpha = 0.5, cap_percent = 10;
  std::int64_t windows = 4, seq_len = 512, cap_channels = 512, hadamard_block = 0;
  int threads = 1;
};

QuantSpec spec_of(const Options& options, const std::string& name) {
  QuantSpec spec{.format = format_from_name(name)};
  if (spec.format == Format::nvfp4) spec.global_scale = global_scale_rule_from_name(options.global_scale);
  if (format_info(spec.format).scale == ScaleKind::e8m0)
    spec.mx_scale = mx_scale_rule_from_name(options.mx_scale);
  return spec;
}

void refuse_repeated(const char* option, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      fail_input("{}: {} stands twice", option, quote(names[i]));
}

AnalyzeOptions analyze_options(const Options& options) {
  if (options.order != "absmax" && options.order != "natural")
    fail_input("--order is {}, expected absmax or natural", quote(options.order));
  refuse_repeated("--methods", options.methods);
  AnalyzeOptions analyze{
      .spec = spec_of(options, options.format),
      .methods = options.methods,
      .formats = {},
      .keep = options.keep,
      .arc = {.order = options.order == "absmax" ? ColumnOrder::falling : ColumnOrder::natural,
              .rule = parse_residual_rule(options.residual),
              .cap_channels = options.cap_channels,
              .cap_percent = options.cap_percent},
      .residual_rule = options.residual,
      .alpha = options.alpha,
      .hadamard_block = options.hadamard_block};
  std::erase(analyze.keep, "none");
  if (!has_row_blocks(analyze.spec.format))
    fail_input("--format {}: methods round activations too; use nvfp4, mxfp4, mxfp8, int4 or int8",
               options.format);
  if (analyze.arc.rule.kind == ResidualRule::Kind::tau) analyze.tau = analyze.arc.rule.value;
  std::vector<std::string> names;
  for (const std::string& name : options.formats) {
    analyze.formats.push_back(spec_of(options, name));
    names.emplace_back(format_name(analyze.formats.back().format));
  }
  refuse_repeated("--formats", names);
  return analyze;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

// The command that gives the same analysis: all that has a say in it.
std::vector<std::string> command_of(const Options& o) {
  std::vector<std::string> words{"halfbyte", "analyze", o.model, "--stats", o.stats};
  for (const std::string& text : o.texts) words.insert(words.end(), {"--text", text});
  const auto add = [&](const char* name, const std::string& value, const std::string& usual) {
    if (value != usual) words.insert(words.end(), {name, value});
  };
  const Options usual;
  add("--windows", std::to_string(o.windows), "");
  add("--seq-len", std::to_string(o.seq_len), "");
  add("--format", o.format, "");
  add("--methods", joined(o.methods), "");
  add("--formats", joined(o.formats), "");
  add("--global-scale", o.global_scale, usual.global_scale);
  add("--mx-scale", o.mx_scale, usual.mx_scale);
  add("--keep", joined(o.keep), joined(usual.keep));
  add("--residual", o.residual, "");
  add("--order", o.order, usual.order);
  add("--cap-percent", fmt::format("{}", o.cap_percent), fmt::format("{}", usual.cap_percent));
  add("--cap-channels", std::to_string(o.cap_channels), std::to_string(usual.cap_channels));
  add("--alpha", fmt::format("{}", o.alpha), fmt::format("{}", usual.alpha));
  add("--hadamard-block", std::to_string(o.hadamard_block), std::to_string(usual.hadamard_block));
  return words;
}

// The first windows of each text in turn, so that all texts have a say.
std::vector<std::span<const std::int32_t>> windows_of(const std::vector<std::vector<std::int32_t>>& texts,
                                                      std::int64_t count, std::int64_t seq_len) {
  std::vector<std::span<const std::int32_t>> windows;
  const auto length = static_cast<std::size_t>(seq_len), most = static_cast<std::size_t>(count);
  bool more = true;
  for (std::size_t first = 0; more && windows.size() < most; first += length) {
    more = false;
    for (const auto& text : texts)
      if (first + length <= text.size() && windows.size() < most) {
        windows.push_back(std::span(text).subspan(first, length));
        more = true;
      }
  }
  if (windows.empty())
    fail_input("no text fills a window of {} tokens; give a longer one or a smaller --seq-len", seq_len);
  return windows;
}

void print_analysis(const Analysis& analysis) {
  fmt::print("{} linears, {} inputs, {} tokens; output error relative to the unrounded output:\n{}\n",
             analysis.linears.size(), analysis.inputs.size(), analysis.tokens,
             render_text(error_summary(analysis)));
  for (const std::string& finding : analysis.findings) fmt::print("- {}\n", finding);
}

void run(const Options& options) {
  const AnalyzeOptions analyze_as = analyze_options(options);
  std::vector<std::filesystem::path> inputs{options.model, options.stats};
  inputs.insert(inputs.end(), options.texts.begin(), options.texts.end());
  check_output_file(options.out, inputs);
  const Checkpoint checkpoint(options.model);
  if (checkpoint.quantized())
    fail_input("{}: the model is quantized; analyze the original, which the errors are measured against",
               options.model);
  const CalibrationStats stats = read_stats(options.stats);
  const Tokenizer tokenizer = Tokenizer::load(options.model);
  std::vector<std::vector<std::int32_t>> texts;
  for (const std::string& path : options.texts) texts.push_back(tokens_of_text(path, tokenizer));
  const auto windows = windows_of(texts, options.windows, options.seq_len);
  if (static_cast<std::int64_t>(windows.size()) < options.windows)
    fmt::print(stderr, "note: the text fills {} windows of {} tokens, {} were asked for\n", windows.size(),
               options.seq_len, options.windows);

  ThreadPool pool(options.threads);
  Model model = Model::load(options.model, pool);
  for (const std::string& warning : model.warnings()) fmt::print(stderr, "warning: {}\n", warning);
  warn_beyond_context(model.config(), options.seq_len);
  Analysis analysis;
  {
    Progress progress("analyzing", 100);
    analysis = analyze(model, checkpoint, stats, windows, analyze_as, pool,
                       [&](std::int64_t done, std::int64_t all) { progress.update(100 * done / all); });
  }
  analysis.command = command_of(options);
  analysis.model = options.model;
  analysis.stats = options.stats;
  analysis.texts = options.texts;
  for (const std::string& path : options.texts)
    if (std::ranges::count(stats.sources, sha256(MappedFile(path).bytes())))
      analysis.findings.insert(
          analysis.findings.begin(),
          fmt::format(
              "the statistics were made from {} too, so it hides what they miss: analyze another text",
              path));
  write_text_file(options.out, dump_json(to_json(analysis)));
  print_analysis(analysis);
}

}  // namespace

void add_analyze(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "analyze", "What methods and formats would do to each linear layer, on real inputs, and why");
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help)->capture_default_str();
  };
  command->add_option("model", options->model, "Model directory, not quantized")->required();
  command->add_option("--stats", options->stats, "Statistics that \"halfbyte calibrate\" wrote")->required();
  command
      ->add_option("--text", options->texts,
                   "UTF-8 text files like what will be read; not those of calibration")
      ->required();
  command->add_option("-o,--output", options->out, "Analysis to write (JSON)")->required();
  add("--windows", options->windows, "Windows of text to run, taken from the texts in turn")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  add("--seq-len", options->seq_len, "Tokens a window")->check(CLI::Range(2, 1 << 20));
  add("--format", options->format, "What methods round weights and activations to");
  add("--methods", options->methods, "rtn, arc, smoothquant, hadamard")->delimiter(',');
  add("--formats", options->formats,
      "Candidate formats of a layer, rounded to nearest; bf16 leaves it as it is")
      ->delimiter(',');
  add("--global-scale", options->global_scale, "nvfp4: pow2, amax, compressed-tensors or modelopt");
  add("--mx-scale", options->mx_scale,
      "mxfp4, mxfp8: floor, ceil, rceil, even, compressed-tensors or modelopt");
  add("--keep", options->keep, "Linear layers to leave out: names, parts or patterns, or none")
      ->delimiter(',');
  add("--residual", options->residual,
      "arc: which channels have residuals: tau=3, energy=95, fixed=64 or percent=5");
  add("--order", options->order, "arc: columns by falling absmax, or natural");
  add("--cap-percent", options->cap_percent, "arc: residual channels at most, percent of an input's")
      ->check(CLI::Range(0.0, 100.0));
  add("--cap-channels", options->cap_channels, "arc: residual channels at most")
      ->check(CLI::NonNegativeNumber);
  add("--alpha", options->alpha, "smoothquant: share of the range that goes into the weights");
  add("--hadamard-block", options->hadamard_block,
      "hadamard: channels rotated together, a power of two (0: the largest that divides)");
  add_threads(*command, options->threads);
  command->footer(
      "Example:\n  halfbyte analyze smollm2 --stats stats.safetensors --text news.txt -o analysis.json\n"
      "  halfbyte report eval.json analysis.json -o report.html");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
