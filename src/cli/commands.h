// The list of subcommands: one row and one file each. A command declares its options and leaves a callback;
// it prints, and throws halfbyte::Error for anything that is wrong.
#pragma once

#include <CLI/CLI.hpp>

namespace halfbyte::cli {

using AddCommand = void (*)(CLI::App& app);

void add_info(CLI::App& app);
void add_import(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_eval(CLI::App& app);
void add_dequantize(CLI::App& app);
void add_bench(CLI::App& app);
void add_generate(CLI::App& app);
void add_inspect(CLI::App& app);
void add_plan(CLI::App& app);
void add_quantize(CLI::App& app);
void add_verify(CLI::App& app);
void add_report(CLI::App& app);
void add_calibrate(CLI::App& app);
void add_analyze(CLI::App& app);
void add_convert(CLI::App& app);

inline constexpr AddCommand kCommands[] = {
    add_info,   add_import, add_tokenize,   add_eval,  add_generate,  add_inspect, add_plan,    add_quantize,
    add_verify, add_report, add_dequantize, add_bench, add_calibrate, add_convert, add_analyze,
};

}  // namespace halfbyte::cli
