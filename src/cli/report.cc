// halfbyte report: evaluations, analyses and checkpoints in one report.
#include "report/report.h"

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "analyze/analysis_file.h"
#include "cli/commands.h"
#include "core/fail.h"
#include "io/output.h"
#include "io/text.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::vector<std::string> inputs;
  std::string out;
  bool chain = false;
};

using Render = std::string (*)(const Document&);

Render render_for(const std::filesystem::path& out) {
  const std::string extension = out.extension().string();
  if (extension == ".html" || extension == ".htm") return render_html;
  if (extension == ".md" || extension.empty()) return render_markdown;
  fail_input("{}: the report is HTML or Markdown by the name of its file; end it in .html or .md",
             quote(out.string()));
}

ReportInputs read_inputs(const std::vector<std::string>& paths) {
  ReportInputs inputs;
  for (const std::string& path : paths) {
    if (std::filesystem::is_directory(path)) {
      inputs.checkpoints.push_back(read_checkpoint_card(path));
      continue;
    }
    const Json json = read_json_file(path);
    if (is_analysis(json))
      inputs.analyses.push_back(parse_analysis(json, path));
    else
      inputs.evals.push_back(parse_eval(json, path));
  }
  return inputs;
}

void run(const Options& options) {
  Render render = nullptr;
  if (!options.out.empty()) {
    render = render_for(options.out);
    check_output_file(options.out,
                      std::vector<std::filesystem::path>(options.inputs.begin(), options.inputs.end()));
  }
  ReportInputs inputs = read_inputs(options.inputs);
  inputs.chain = options.chain;
  if (!inputs.evals.empty()) fmt::print("{}", render_text(result_table(inputs.evals)));
  const Document document = make_report(inputs);
  if (render) write_text_file(options.out, render(document));
}

}  // namespace

void add_report(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("report", "Evaluations, analyses and checkpoints in one table, page or text");
  command
      ->add_option("inputs", options->inputs,
                   "Files that eval --json and analyze wrote, and model directories, in any order")
      ->required();
  command->add_option(
      "-o,--output", options->out,
      "Write the report: NAME.html is one page with charts that loads nothing, NAME.md Markdown");
  command->add_flag("--chain", options->chain,
                    "The evaluations, in the order given, each add one thing: show what each takes off KL");
  command->footer(
      "Examples:\n  halfbyte report bf16.json nf4.json nvfp4.json -o report.md\n"
      "  halfbyte report bf16.json nvfp4.json analysis.json bf16 nvfp4 -o report.html");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
