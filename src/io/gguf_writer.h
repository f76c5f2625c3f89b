// Writes GGUF files (version 3): metadata and tensor places first, then the tensors' bytes in any order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/shape.h"
#include "io/tensor_places.h"

namespace halfbyte {

using GgufMetadata = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::string>,
                                  std::vector<std::int32_t>, std::vector<float>>;

struct GgufTensorSpec {
  std::string name;
  std::uint32_t type = 0;  // id of a row of kGgmlTypes
  Shape shape;             // outermost first; rows hold whole blocks
};

class GgufWriter {
 public:
  // Throws bad_input for a name given twice, an unknown type, or a row that is no multiple of the type's block.
  GgufWriter(const std::filesystem::path& target,
             const std::vector<std::pair<std::string, GgufMetadata>>& keys,
             std::vector<GgufTensorSpec> tensors);

  void append(std::string_view name, std::span<const std::byte> bytes);  // the next bytes of that tensor
  void finish();  // every tensor must be complete; the file appears under its name
  std::int64_t file_bytes() const { return file_bytes_; }

 private:
  OutputFile file_;
  std::vector<GgufTensorSpec> specs_;
  TensorPlaces places_;  // names live in specs_
  std::int64_t file_bytes_ = 0;
};

}  // namespace halfbyte
