// halfbyte bench matmul: products with 4-bit weights on the GPU against cuBLAS with the decoded BF16 weights.
#pragma once

#include <CLI/CLI.hpp>

namespace halfbyte::cli {

void add_bench_matmul(CLI::App& bench);

}  // namespace halfbyte::cli
