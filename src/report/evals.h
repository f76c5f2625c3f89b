// What a report needs of one evaluation, and the table that compares several.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "report/document.h"

namespace halfbyte {

struct EvalRow {
  std::string model, weights, activations;
  double bits_per_weight = 0, megabytes = 0, perplexity = 0, seconds = 0;
  std::optional<double> stderr_, kl_mean, top1_agreement;
  std::string text, protocol;
  std::int64_t windows = 0, seq_len = 0, tokens = 0;
  std::optional<std::string> reference;
  std::optional<std::int64_t> threads;
};

// Throws bad_input, naming the file and the key, where it is not what eval --json writes.
EvalRow parse_eval(const Json& json, const std::string& file);

// Whether both scored one text, cut alike: only then are their figures compared.
bool same_protocol(const EvalRow& a, const EvalRow& b);

// The last part of a model's path.
std::string short_name(const std::string& path);

// A row a model: formats, bits, size, perplexity with its standard error, KL, top-1, seconds.
Table result_table(const std::vector<EvalRow>& rows);

}  // namespace halfbyte
