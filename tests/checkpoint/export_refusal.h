// The message with which an export is refused, after making sure that nothing was written.
#pragma once

#include <string>

#include "checkpoint/export.h"
#include "tests/support/scratch.h"

namespace halfbyte::test {

inline std::string refusal(const std::filesystem::path& dir, ExportFormat format,
                           const ExportOptions& options = {}) {
  const Scratch scratch;
  const std::string message =
      message_of([&] { export_checkpoint(Checkpoint(dir), format, scratch.path(), options); });
  EXPECT_EQ(scratch.entries(), 0u) << "something was written before the refusal: " << message;
  return message;
}

}  // namespace halfbyte::test
