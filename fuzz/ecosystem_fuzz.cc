// The readers and writers of bitsandbytes, compressed-tensors and ModelOpt checkpoints.
#include "fuzz/ecosystem_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    halfbyte::fuzz::read_ecosystem(data, size);
  } catch (const halfbyte::Error&) {
  }
  return 0;
}
