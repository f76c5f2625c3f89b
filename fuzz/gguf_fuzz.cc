// The GGUF reader and all that an import makes of a file, short of writing it.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/gguf_config.h"
#include "checkpoint/gguf_tokenizer.h"
#include "formats/ggml_blocks.h"
#include "fuzz/memory_file.h"
#include "halfbyte/error.h"
#include "io/gguf.h"

namespace {

void decode_first_blocks(const halfbyte::GgufTensor& tensor) {
  const halfbyte::GgmlDecoder* decoder = halfbyte::find_ggml_decoder(tensor.type->id);
  if (!decoder) return;
  const auto blocks =
      std::min<std::int64_t>(static_cast<std::int64_t>(tensor.data.size()) / decoder->block_bytes, 8);
  std::vector<float> values(static_cast<std::size_t>(blocks * decoder->block_values));
  decoder->decode(tensor.data.data(), blocks, values.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const halfbyte::fuzz::MemoryFile bytes(data, size);
  try {
    const halfbyte::GgufFile file(bytes.path());
    for (const halfbyte::GgufTensor& tensor : file.tensors()) decode_first_blocks(tensor);
    const halfbyte::GgufModel model = halfbyte::read_gguf_model(file);
    halfbyte::list_gguf_tensors(file, model);
    halfbyte::dump_json(halfbyte::gguf_config_json(file, model));
    halfbyte::read_gguf_tokenizer(file, model.vocab, model.context);
  } catch (const halfbyte::Error&) {
  }
  return 0;
}
