// The weights of a model folder: one safetensors file, or shards of a limited size and the index that lists them.
#pragma once

#include <memory>

#include "io/safetensors.h"

namespace halfbyte {

class ShardedWriter {
 public:
  // Tensors go to shards in the given order, each shard up to max_bytes of data (0: one file); a larger tensor has a shard of
  // its own. One file is called model.safetensors, several model-00001-of-00003.safetensors.
  ShardedWriter(const std::filesystem::path& folder, const std::vector<TensorSpec>& tensors,
                const Metadata& metadata, std::int64_t max_bytes);

  void append(std::string_view name, std::span<const std::byte> bytes);  // the next bytes of that tensor
  void finish();                                                         // every tensor must be complete
  std::size_t files() const { return writers_.size(); }
  std::int64_t file_bytes() const;  // of all files but the index

 private:
  std::filesystem::path folder_;
  std::vector<std::string> names_;  // of the files
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;
  std::map<std::string, std::size_t, std::less<>> shard_of_;
  std::int64_t data_bytes_ = 0;
};

}  // namespace halfbyte
