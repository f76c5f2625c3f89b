// The list of subcommands: one row and one file each. A command declares its options and leaves a callback;
// it prints, and throws halfbyte::Error for anything that is wrong.
#pragma once

#include <CLI/CLI.hpp>

namespace halfbyte::cli {

using AddCommand = void (*)(CLI::App& app);

void add_info(CLI::App& app);
void add_tokenize(CLI::App& app);

inline constexpr AddCommand kCommands[] = {
    add_info,
    add_tokenize,
};

}  // namespace halfbyte::cli
