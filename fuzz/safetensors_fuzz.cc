// The safetensors reader: tensors of an accepted file must lie inside it and match their shapes.
#include <cstdint>
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "halfbyte/error.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const halfbyte::fuzz::MemoryFile bytes(data, size);
  try {
    const halfbyte::SafetensorsFile file(bytes.path());
    unsigned sum = 0;
    for (const halfbyte::NamedTensor& tensor : file.tensors()) {
      const auto expected = tensor.view.elements() * halfbyte::dtype_bytes(tensor.view.dtype);
      if (static_cast<std::int64_t>(tensor.view.data.size()) != expected || !file.find(tensor.name))
        std::abort();
      for (const std::byte byte : tensor.view.data) sum += static_cast<unsigned>(byte);
    }
    if (sum == 0xFFFFFFFFu) std::abort();  // keeps the reads
  } catch (const halfbyte::Error&) {
  }
  return 0;
}
