// halfbyte report: the results of several evaluations in one table.
#include <fmt/core.h>

#include <memory>

#include "cli/commands.h"
#include "io/output.h"
#include "report/table.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::vector<std::string> files;
  std::string out;
};

void run(const Options& options) {
  if (!options.out.empty())
    check_output_file(options.out,
                      std::vector<std::filesystem::path>(options.files.begin(), options.files.end()));
  std::vector<EvalRow> rows;
  for (const std::string& file : options.files) rows.push_back(read_eval(file));
  fmt::print("{}", text_table(rows));
  if (!options.out.empty()) write_text_file(options.out, markdown_report(rows));
}

}  // namespace

void add_report(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("report", "One table of several evaluations");
  command->add_option("files", options->files, "Files that eval --json wrote")->required();
  command->add_option("-o,--output", options->out, "Write the report as Markdown to this file");
  command->footer("Example:\n  halfbyte report bf16.json nf4.json nvfp4.json -o report.md");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
