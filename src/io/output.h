// Files and folders that appear under their name only when they are complete: written beside it, renamed
// last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace halfbyte {

// What becomes of an output that was not committed: removed, or kept where the same command finds it again.
enum class Unfinished : std::uint8_t { remove, keep };

// A file in the making. An existing file of that name is replaced at commit(). A device or pipe (/dev/stdout)
// is written to directly. Destruction without commit() removes what was written, or keeps it as TARGET.part: there the next
// object for the same target finds it, bytes and all. Only one process at a time may have such a file.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& target, Unfinished unfinished = Unfinished::remove);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return name_; }  // the target as it was given

  void write(std::span<const std::byte> bytes);  // at the end of what write() wrote so far
  void write(std::string_view text);
  // At a place of the caller's choice; different threads may write different places. Not for devices.
  void write_at(std::int64_t offset, std::span<const std::byte> bytes);

  // What lies at that place, of a file that is kept. Throws where it is shorter.
  void read_at(std::int64_t offset, std::span<std::byte> bytes) const;

  // Closes and renames. With sync, the bytes are on the disk before the name is.
  void commit(bool sync = false);

 private:
  void discard() noexcept;

  std::string name_;
  std::filesystem::path target_, temporary_;  // temporary_ is empty for a device
  Unfinished unfinished_;
  int fd_ = -1;
  std::int64_t end_ = 0;
};

// Throws where writing target would destroy an input of the same command: the input is target itself or lies in it, or
// target is a file inside an input that is a folder. Inputs that do not exist are passed over.
void refuse_overwriting(const std::filesystem::path& target, std::span<const std::filesystem::path> inputs);

// For commands that work long before they write: throws now what writing the file target would throw later, and what
// refuse_overwriting does.
void check_output_file(const std::filesystem::path& target, std::span<const std::filesystem::path> inputs);

// Writes a whole small file at once, atomically.
void write_text_file(const std::filesystem::path& target, std::string_view text);

// A folder in the making: files go to temporary(), commit() gives it the target's name. An existing target
// must be an empty folder, or with overwrite a model folder (a config.json and only kinds of files that models
// have), which is then replaced whole. Destruction without commit() removes it, or keeps it as .TARGET.unfinished for the next
// object for the same target.
class OutputDirectory {
 public:
  explicit OutputDirectory(const std::filesystem::path& target, bool overwrite = false,
                           Unfinished unfinished = Unfinished::remove);
  ~OutputDirectory();
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  void commit();

 private:
  std::string name_;
  std::filesystem::path target_, temporary_;
  Unfinished unfinished_;
  bool committed_ = false;
};

}  // namespace halfbyte
