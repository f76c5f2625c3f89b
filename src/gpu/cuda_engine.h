// The engine that runs a model on a CUDA device.
#pragma once

#include <filesystem>
#include <memory>

#include "gpu/arithmetic.h"
#include "model/session.h"

namespace halfbyte {

// Throws a device error, in one sentence, where this build or this machine has no CUDA.
std::unique_ptr<Engine> load_cuda_engine(const std::filesystem::path& dir, const CudaOptions& options,
                                         ThreadPool& pool);

}  // namespace halfbyte
