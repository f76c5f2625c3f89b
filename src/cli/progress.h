// A progress line on standard error: redrawn in place on a terminal, silent where the output is a file or
// pipe.
#pragma once

#include <cstdint>
#include <string_view>

namespace halfbyte::cli {

class Progress {
 public:
  Progress(std::string_view what, std::int64_t total);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // done of total, and a short note behind the bar.
  void update(std::int64_t done, std::string_view note = {});

 private:
  std::string_view what_;
  std::int64_t total_;
  bool terminal_;
};

}  // namespace halfbyte::cli
