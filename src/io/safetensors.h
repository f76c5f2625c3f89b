// safetensors files: a strict reader over a mapped file, a sharded model, and a writer that streams.
//
//   layout  u64 N (little-endian); N bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]},
//   ..,
//           "__metadata__": {string: string}}, padded with spaces; then the data, to which the offsets are
//           relative
//   rules   N <= 100,000,000; the header begins with '{'; tensors cover the data exactly, without gap or
//   overlap
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/tensor.h"
#include "io/mapped_file.h"
#include "io/output.h"
#include "io/tensor_places.h"

namespace halfbyte {

using Metadata = std::map<std::string, std::string, std::less<>>;

struct NamedTensor {
  std::string name;
  TensorView view;  // bytes of the mapped file, valid while the file object lives; may be unaligned
};

// How much of a file takes up address space: all of it, or each tensor from the moment it is asked for until it is dropped.
enum class Mapping : std::uint8_t { whole, by_tensor };

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path, Mapping mapping = Mapping::whole);

  const std::string& path() const { return file_.path(); }
  std::int64_t size() const { return size_; }
  // In the order of the data; mapped by tensor, those that were not found yet have no bytes.
  std::span<const NamedTensor> tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  const TensorView* describe(std::string_view name) const;  // type and shape; nullptr where there is none
  const TensorView* find(std::string_view name) const;      // with its bytes; any thread may ask
  const TensorView& at(std::string_view name) const;        // throws where there is none

  // Gives back the memory of pages that were read for this tensor. Mapped by tensor, its bytes are gone until it is found
  // again.
  void drop(std::string_view name) const;

 private:
  struct ByTensor;

  MappedFile file_;  // the whole file, or its header
  std::int64_t size_ = 0;
  mutable std::vector<NamedTensor> tensors_;                 // the bytes of their views come and go
  std::shared_ptr<ByTensor> by_tensor_;                      // null: mapped whole
  std::unordered_map<std::string_view, std::size_t> index_;  // keys live in tensors_
  Metadata metadata_;
};

// All tensors of a model: one .safetensors file, or a folder with model.safetensors or with
// model.safetensors.index.json and the shards it names (files of that same folder only). Mapped by tensor, so that a model
// larger than the address space a process may use can be gone through.
class SafetensorsModel {
 public:
  explicit SafetensorsModel(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  std::span<const SafetensorsFile> files() const { return files_; }
  std::vector<std::string> names() const;  // sorted
  const TensorView* describe(
      std::string_view name) const;  // type and shape only; the others as in SafetensorsFile
  const TensorView* find(std::string_view name) const;
  const TensorView& at(std::string_view name) const;
  const SafetensorsFile& file_of(std::string_view name) const;
  void drop(std::string_view name) const { file_of(name).drop(name); }

 private:
  struct Place {
    std::size_t file;
    const TensorView* view;
  };
  const Place* place(std::string_view name) const;

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string_view, Place> index_;  // keys live in files_
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

// Writes the header at once and then takes the tensors' bytes in any order, in one piece or several; the file
// appears under its name at finish(). Tensors lie in the reference writer's order: widest type first, then by
// name. Different tensors may be written from different threads.
class SafetensorsWriter {
 public:
  // Unfinished::keep: a file of the same tensors that an earlier object left behind is gone on with (output.h).
  SafetensorsWriter(const std::filesystem::path& target, std::vector<TensorSpec> tensors,
                    const Metadata& metadata, Unfinished unfinished = Unfinished::remove);

  std::span<const TensorSpec> tensors() const { return specs_; }  // in file order
  // The next bytes of that tensor.
  void append(std::string_view name, std::span<const std::byte> bytes);
  // The SHA-256 of that tensor's bytes as they lie in a kept file; with it they count as appended.
  std::string take_over(std::string_view name);
  // The bytes of a whole tensor that was taken over or appended to a kept file.
  void read(std::string_view name, std::span<std::byte> bytes);
  // Forgets what was appended or taken over of that tensor.
  void restart(std::string_view name) { places_.at(name, file_).done = 0; }
  // Every tensor must be complete.
  void finish(bool sync = false);
  std::int64_t file_bytes() const { return file_bytes_; }
  const std::string& header_sha256() const { return header_sha256_; }  // of the first 8 + N bytes

 private:
  OutputFile file_;
  std::vector<TensorSpec> specs_;
  TensorPlaces places_;  // names live in specs_
  std::int64_t file_bytes_ = 0;
  std::string header_sha256_;
};

}  // namespace halfbyte
