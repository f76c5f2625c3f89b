// The files of a model folder, found by the index where there are several.
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "core/fail.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/text.h"

namespace halfbyte {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// A name of a file in the index's own folder: anything that could lead elsewhere is refused.
void check_shard_name(const std::string& index, std::string_view tensor, std::string_view name) {
  if (name.find_first_of(std::string_view("/\\\0", 3)) != name.npos || !name.ends_with(".safetensors") ||
      name.starts_with('.'))
    fail_input(
        "{}: tensor {} is said to lie in {}, which is not the name of a .safetensors file in the same folder",
        index, quote(tensor), quote(name));
}

// tensor name -> shard file name
std::map<std::string, std::string> read_index(const fs::path& path) {
  const Json root = read_json_file(path);
  const std::string file = path.string();
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : json_object(root, "weight_map", file).items()) {
    if (!shard.is_string())
      fail_input("{}: weight_map must give a file name for tensor {}", file, quote(tensor));
    check_shard_name(file, tensor, shard.get_ref<const std::string&>());
    shards.emplace(tensor, shard.get<std::string>());
  }
  if (shards.empty()) fail_input("{}: weight_map names no tensors", file);
  return shards;
}

}  // namespace

SafetensorsModel::SafetensorsModel(const fs::path& path) : path_(path.string()) {
  std::error_code error;
  std::map<std::string, std::string> shards;
  const fs::path index = path / kIndex;
  if (!fs::is_directory(path, error)) {
    if (!fs::exists(path, error)) fail(ErrorKind::io, "{}: does not exist", path_);
    files_.emplace_back(path, Mapping::by_tensor);
  } else if (fs::exists(path / kSingle, error)) {
    files_.emplace_back(path / kSingle, Mapping::by_tensor);
  } else if (fs::exists(index, error)) {
    shards = read_index(index);
    std::set<std::string> names;
    for (const auto& [tensor, shard] : shards) names.insert(shard);
    for (const std::string& name : names) {
      if (!fs::exists(path / name, error))
        fail(ErrorKind::io, "{}: names the shard {}, which is not there; is the download complete?",
             index.string(), quote(name));
      files_.emplace_back(path / name, Mapping::by_tensor);
    }
  } else {
    const bool pickled = fs::exists(path / "pytorch_model.bin", error) ||
                         fs::exists(path / "pytorch_model.bin.index.json", error);
    fail(pickled ? ErrorKind::unsupported : ErrorKind::io, "{}: has neither {} nor {}{}", path_, kSingle,
         kIndex,
         pickled ? ", only pickled weights (pytorch_model.bin); convert them to safetensors first" : "");
  }
  for (std::size_t i = 0; i < files_.size(); ++i)
    for (const NamedTensor& tensor : files_[i].tensors()) {
      const auto [first, added] = index_.emplace(tensor.name, Place{i, &tensor.view});
      if (!added)
        fail_input("{}: tensor {} lies in two shards, {} and {}", index.string(), quote(tensor.name),
                   fs::path(files_[first->second.file].path()).filename().string(),
                   fs::path(files_[i].path()).filename().string());
    }
  for (const auto& [tensor, shard] : shards) {
    const Place* found = place(tensor);
    if (!found || fs::path(files_[found->file].path()).filename() != shard)
      fail_input("{}: tensor {} should lie in {}, but that file does not hold it", index.string(),
                 quote(tensor), quote(shard));
  }
}

const SafetensorsModel::Place* SafetensorsModel::place(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &found->second;
}

std::vector<std::string> SafetensorsModel::names() const {
  std::vector<std::string> all;
  for (const auto& [name, where] : index_) all.emplace_back(name);
  return all;
}

const TensorView* SafetensorsModel::describe(std::string_view name) const {
  const Place* found = place(name);
  return found ? found->view : nullptr;
}

const TensorView* SafetensorsModel::find(std::string_view name) const {
  const Place* found = place(name);
  return found ? files_[found->file].find(name) : nullptr;
}

const TensorView& SafetensorsModel::at(std::string_view name) const {
  if (const TensorView* view = find(name)) return *view;
  fail_input("{}: has no tensor {}", path_, quote(name));
}

const SafetensorsFile& SafetensorsModel::file_of(std::string_view name) const {
  if (const Place* found = place(name)) return files_[found->file];
  fail_input("{}: has no tensor {}", path_, quote(name));
}

}  // namespace halfbyte
