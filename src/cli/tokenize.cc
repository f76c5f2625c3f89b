// halfbyte tokenize: text to token ids and back, one text or many a line.
#include <fmt/core.h>

#include <charconv>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "core/fail.h"
#include "io/file.h"
#include "io/json.h"
#include "io/text.h"
#include "model/tokenizer.h"

namespace halfbyte::cli {

namespace {

constexpr std::int64_t kMaxInputBytes = std::int64_t{1} << 30;

struct Options {
  std::string model, text;
  std::optional<std::string> file, decode;
  bool jsonl = false, no_special = false;
};

void print_ids(const std::vector<std::int32_t>& ids) {
  std::string line;
  for (std::size_t i = 0; i < ids.size(); ++i) line += fmt::format("{}{}", i ? " " : "", ids[i]);
  fmt::print("{}\n", line);
}

std::vector<std::int32_t> parse_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; (at = text.find_first_not_of(" ,", at)) != text.npos;) {
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    if (error != std::errc())
      fail_input("--decode: {} is not a list of token ids like 1116,446", quote(text));
    ids.push_back(id);
    at = static_cast<std::size_t>(end - text.data());
  }
  return ids;
}

// Each line of standard input is a JSON string, answered by its ids as an array, or an array of ids, answered by
// its text as a JSON string.
void run_lines(const Tokenizer& tokenizer, const Options& options) {
  std::string line;
  for (std::int64_t number = 1; std::getline(std::cin, line); ++number) {
    const std::string where = fmt::format("standard input, line {}", number);
    const Json value = parse_json(line, where);
    if (value.is_string()) {
      fmt::print("{}\n",
                 Json(tokenizer.encode(value.get_ref<const std::string&>(), !options.no_special)).dump());
      continue;
    }
    if (!value.is_array()) fail_input("{}: expected a JSON string or an array of token ids", where);
    std::vector<std::int32_t> ids;
    for (const Json& id : value) {
      if (!id.is_number_integer() || id.get<std::int64_t>() != id.get<std::int32_t>())
        fail_input("{}: {} is not a token id", where, id.dump());
      ids.push_back(id.get<std::int32_t>());
    }
    fmt::print("{}\n", Json(tokenizer.decode(ids, options.no_special)).dump());
  }
}

void run(const Options& options) {
  const Tokenizer tokenizer = Tokenizer::load(options.model);
  if (options.jsonl)
    run_lines(tokenizer, options);
  else if (options.decode)
    fmt::print("{}\n", tokenizer.decode(parse_ids(*options.decode), options.no_special));
  else if (options.file)
    print_ids(tokenizer.encode(read_text_file(*options.file, kMaxInputBytes), !options.no_special));
  else
    print_ids(tokenizer.encode(options.text, !options.no_special));
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or ids into text");
  const auto options = std::make_shared<Options>();
  command->add_option("model", options->model, "Directory with tokenizer.json or tokenizer.model")
      ->required();
  auto* input = command->add_option_group("input", "What to turn");
  input->add_option("--text", options->text, "The text itself");
  input->add_option("--file", options->file, "A UTF-8 file, taken as one text");
  input->add_flag("--jsonl", options->jsonl,
                  "Lines on standard input: a JSON string gives its ids, an array its text");
  input->add_option("--decode", options->decode,
                    "Token ids, with commas or spaces between: prints their text");
  input->require_option(1);
  command->add_flag("--no-special", options->no_special,
                    "Add no opening or closing token; leave special tokens out of decoded text");
  command->footer(
      "Examples:\n  halfbyte tokenize MODEL --text \"Hello, world\"\n"
      "  halfbyte tokenize MODEL --decode 19556,28,905");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
