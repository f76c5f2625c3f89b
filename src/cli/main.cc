// Entry point: parses the command line, runs the chosen subcommand, turns errors into one sentence and an
// exit code. Exit codes: 0 done, 1 our own failure, 2 wrong input or usage.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>

#include "cli/commands.h"
#include "halfbyte/error.h"
#include "io/cleanup.h"

namespace {

// Names from files and the command line may hold anything; a message is one line.
std::string on_one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = '?';
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"halfbyte: 4-bit floating-point numbers for large language models", "halfbyte"};
  app.set_version_flag("--version", "halfbyte " HALFBYTE_VERSION);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of every subcommand");
  halfbyte::install_cleanup_handler();
  for (const auto add : halfbyte::cli::kCommands) add(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help and version
    const auto chosen = app.get_subcommands();
    fmt::print(stderr, "halfbyte: {}; \"halfbyte {}--help\" lists what there is\n", error.what(),
               chosen.empty() ? "" : chosen.front()->get_name() + " ");
    return 2;
  } catch (const halfbyte::Error& error) {
    fmt::print(stderr, "halfbyte: {}\n", on_one_line(error.what()));
    return 2;
  } catch (const std::filesystem::filesystem_error& error) {
    fmt::print(stderr, "halfbyte: {}: {}\n", error.path1().string(), error.code().message());
    return 2;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "halfbyte: out of memory; fewer threads or a smaller model may fit\n");
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "halfbyte: internal error: {}; please report it with the command that led here\n",
               error.what());
    return 1;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    fmt::print(stderr,
               "halfbyte: standard output could not be written; is the disk full or the pipe closed?\n");
    return 2;
  }
  return 0;
}
