// Takes the place of src/gpu in a build without CUDA.
#include "gpu/cuda_engine.h"

#include <cstdlib>

#include "device/cuda/device.h"

namespace halfbyte {

std::unique_ptr<Engine> load_cuda_engine(const std::filesystem::path&, const CudaOptions&, ThreadPool&) {
  cuda::require_device("the model");
  std::abort();  // the line above throws in this build
}

}  // namespace halfbyte
