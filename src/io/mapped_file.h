// A file or a part of one mapped read-only into memory, with the means to stream through one larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace halfbyte {

// Bytes stay valid while the object lives; moving it does not move them. The file must not shrink meanwhile.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);  // regular files only; an empty one has no bytes
  // Only the bytes from begin on, `size` of them; throws where the file ends before.
  MappedFile(const std::filesystem::path& path, std::int64_t begin, std::int64_t size);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }  // as it was given, for messages
  std::int64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }

  // Asks the kernel to read these bytes ahead.
  void prefetch(std::span<const std::byte> part) const;
  // Gives the memory of the pages wholly inside part back; they are read again from the file when touched.
  void drop(std::span<const std::byte> part) const;

 private:
  void map(int fd, std::int64_t begin, std::int64_t size);

  std::string path_;
  const std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
  std::int64_t lead_ = 0;  // bytes before data_ that the mapping holds too, since it begins at a page
};

}  // namespace halfbyte
