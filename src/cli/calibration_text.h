// Calibration text on the command line: which files, and how many samples of them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "calibrate/samples.h"

namespace halfbyte::cli {

struct CalibrationText {
  std::vector<std::string> texts, jsonls;
  std::string field = "text";

  bool empty() const { return texts.empty() && jsonls.empty(); }
  std::vector<std::string> paths() const;
  std::vector<std::string> sums() const;  // SHA-256 of each file
  // Their windows; reads and tokenizes them, and says so where they are fewer than asked for.
  SampleSet samples(const std::string& model, const SampleOptions& options) const;
};

// Declares --text, --jsonl, --field.
std::vector<CLI::Option*> add_calibration_text(CLI::App& command, CalibrationText& text);

}  // namespace halfbyte::cli
