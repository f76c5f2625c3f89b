#include "cli/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace halfbyte::cli {

Progress::Progress(std::string_view what, std::int64_t total)
    : what_(what), total_(std::max<std::int64_t>(total, 1)), terminal_(isatty(STDERR_FILENO) == 1) {
  update(0);
}

Progress::~Progress() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

void Progress::update(std::int64_t done, std::string_view note) {
  if (!terminal_) return;
  constexpr std::int64_t kWidth = 30;
  const auto filled = static_cast<std::size_t>(std::min(done, total_) * kWidth / total_);
  fmt::print(stderr, "\r\033[K{} [{}{}] {}/{} {}", what_, std::string(filled, '='),
             std::string(kWidth - filled, ' '), done, total_, note);
  std::fflush(stderr);
}

}  // namespace halfbyte::cli
