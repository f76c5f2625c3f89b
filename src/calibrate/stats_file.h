// stats.safetensors: CalibrationStats on disk (docs/files.md), written whole or not at all and read strictly.
#pragma once

#include <filesystem>

#include "calibrate/stats.h"

namespace halfbyte {

void write_stats(const std::filesystem::path& path, const CalibrationStats& stats);

// Throws bad_input naming file, tensor and place for anything missing, superfluous, misshapen, negative or not finite.
CalibrationStats read_stats(const std::filesystem::path& path);

}  // namespace halfbyte
