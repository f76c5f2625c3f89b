// stats.safetensors: CalibrationStats on disk (docs/files.md), written whole or not at all and read strictly.
#pragma once

#include <filesystem>

#include "calibrate/stats.h"

namespace halfbyte {

void write_stats(const std::filesystem::path& path, const CalibrationStats& stats);

// Throws bad_input naming file, tensor and place for anything missing, superfluous, misshapen, negative or not finite.
// The second moments, which are large, are left out unless asked for; then they must be there.
CalibrationStats read_stats(const std::filesystem::path& path, bool second_moments = false);

}  // namespace halfbyte
