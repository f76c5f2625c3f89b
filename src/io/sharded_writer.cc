#include "io/sharded_writer.h"

#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"

namespace halfbyte {

ShardedWriter::ShardedWriter(const std::filesystem::path& folder, const std::vector<TensorSpec>& tensors,
                             const Metadata& metadata, std::int64_t max_bytes)
    : folder_(folder) {
  std::vector<std::vector<TensorSpec>> shards(1);
  std::int64_t filled = 0;
  for (const TensorSpec& tensor : tensors) {
    const auto elements = checked_count(tensor.shape);
    const auto bytes = elements ? checked_mul(*elements, dtype_bytes(tensor.dtype)) : std::nullopt;
    if (!bytes || __builtin_add_overflow(data_bytes_, *bytes, &data_bytes_))
      fail_input("{}: tensor {} of shape {} is too large to be written", folder.string(), quote(tensor.name),
                 to_string(tensor.shape));
    if (max_bytes > 0 && filled > 0 && *bytes > max_bytes - filled) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    filled += *bytes;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    names_.push_back(shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    for (const TensorSpec& tensor : shards[i])
      if (!shard_of_.emplace(tensor.name, i).second)
        fail_input("{}: the tensor name {} cannot be written twice", folder.string(), quote(tensor.name));
    writers_.push_back(
        std::make_unique<SafetensorsWriter>(folder / names_[i], std::move(shards[i]), metadata));
  }
}

void ShardedWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  const auto found = shard_of_.find(name);
  if (found == shard_of_.end()) fail_input("{}: no tensor {} was announced", folder_.string(), quote(name));
  writers_[found->second]->append(name, bytes);
}

void ShardedWriter::finish() {
  for (const auto& writer : writers_) writer->finish();
  if (writers_.size() == 1) return;
  Json map = Json::object();
  for (const auto& [name, shard] : shard_of_) map[name] = names_[shard];
  write_text_file(folder_ / "model.safetensors.index.json",
                  dump_json({{"metadata", {{"total_size", data_bytes_}}}, {"weight_map", std::move(map)}}));
}

std::int64_t ShardedWriter::file_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& writer : writers_) bytes += writer->file_bytes();
  return bytes;
}

}  // namespace halfbyte
