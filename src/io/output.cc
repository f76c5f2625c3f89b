// Temporary names, writes that always finish or throw, and the renames.
#include "io/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/fail.h"
#include "io/cleanup.h"

namespace halfbyte {

namespace fs = std::filesystem;

namespace {

// The target with links resolved and no trailing slash, so that its parent is where the renaming happens.
fs::path resolve(const fs::path& target) {
  if (target.empty()) fail_input("an empty path was given for the output");
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status))
    return target;  // device, pipe
  fs::path full = fs::weakly_canonical(fs::absolute(target, error), error);
  if (error) fail(ErrorKind::io, "{}: is not a usable path: {}", target.string(), error.message());
  if (!full.has_filename() && full.has_relative_path()) full = full.parent_path();
  const fs::path parent = full.parent_path();
  if (!fs::is_directory(parent, error))
    fail(ErrorKind::io, "{}: cannot be written, since the folder {} does not exist; create it first",
         target.string(), parent.string());
  return full;
}

// ".NAME.PID-N.part" beside the target; a number that a killed process of the same id left behind is passed
// over.
fs::path temporary_name(const fs::path& target) {
  static std::atomic<int> next{0};
  const std::string name = target.filename().string().substr(0, 200);
  for (;;) {
    fs::path path = target.parent_path() / fmt::format(".{}.{}-{}.part", name, ::getpid(), next++);
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return path;
  }
}

[[noreturn]] void fail_write(const std::string& name, int error) {
  fail(ErrorKind::io, "{}: cannot be written: {}", name, std::strerror(error));
}

void write_all(const std::string& name, std::span<const std::byte> bytes, const auto& write_some) {
  while (!bytes.empty()) {
    const ssize_t done = write_some(bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_write(name, done < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

}  // namespace

OutputFile::OutputFile(const fs::path& target, Unfinished unfinished)
    : name_(target.string()), target_(resolve(target)), unfinished_(unfinished) {
  struct stat info {};
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) fail(ErrorKind::io, "{}: cannot be written: it is a directory", name_);
  if (exists && !S_ISREG(info.st_mode)) {
    fd_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) fail_write(name_, errno);
    return;
  }
  if (unfinished_ == Unfinished::keep) {
    temporary_ = target_.string() + ".part";
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0) fail_write(name_, errno);
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      ::close(fd_);
      fail(ErrorKind::io, "{}: another process is writing it; wait for it or stop it", name_);
    }
    return;
  }
  temporary_ = temporary_name(target_);
  register_temporary(temporary_);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    const int error = errno;
    settle_temporary(temporary_, [] {});
    fail_write(name_, error);
  }
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() noexcept {
  if (fd_ < 0) return;
  ::close(fd_);
  fd_ = -1;
  if (!temporary_.empty() && unfinished_ == Unfinished::remove)
    settle_temporary(temporary_, [&] { ::unlink(temporary_.c_str()); });
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (temporary_.empty()) {
    write_all(name_, bytes,
              [&](const std::byte* data, std::size_t size) { return ::write(fd_, data, size); });
  } else {
    write_at(end_, bytes);
  }
  end_ += static_cast<std::int64_t>(bytes.size());
}

void OutputFile::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void OutputFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  write_all(name_, bytes, [&](const std::byte* data, std::size_t size) {
    const ssize_t done = ::pwrite(fd_, data, size, offset);
    if (done > 0) offset += done;
    return done;
  });
}

void OutputFile::read_at(std::int64_t offset, std::span<std::byte> bytes) const {
  HB_DCHECK(unfinished_ == Unfinished::keep);
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd_, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      fail(ErrorKind::io, "{}: cannot be read back: {}", name_,
           got < 0 ? std::strerror(errno) : "it ends early");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

void OutputFile::commit(bool sync) {
  HB_DCHECK(fd_ >= 0);
  if (temporary_.empty()) {
    if (::close(std::exchange(fd_, -1)) != 0) fail_write(name_, errno);
    return;
  }
  if ((sync && ::fsync(fd_) != 0)) fail_write(name_, errno);
  settle_temporary(temporary_, [&] {
    // Renamed while still open, so that a failure leaves the destructor something to remove.
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_write(name_, errno);
  });
  if (::close(std::exchange(fd_, -1)) != 0) fail_write(name_, errno);
}

void refuse_overwriting(const fs::path& target, std::span<const fs::path> inputs) {
  std::error_code error;
  const fs::path output = fs::weakly_canonical(target, error);
  if (error) return;
  const auto inside = [](const fs::path& inner, const fs::path& outer) {
    const auto [end, ignored] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
    return end == outer.end();
  };
  for (const fs::path& input : inputs) {
    const fs::path source = fs::canonical(input, error);
    if (error || !(fs::is_regular_file(source, error) || fs::is_directory(source, error))) continue;
    if (inside(source, output) ||
        (inside(output, source) && fs::exists(output, error) && !fs::is_directory(output, error)))
      fail_input("{}: writing it would destroy the input {}; choose another name for the output",
                 target.string(), input.string());
  }
}

void check_output_file(const fs::path& target, std::span<const fs::path> inputs) {
  refuse_overwriting(target, inputs);
  std::error_code error;
  if (fs::is_directory(target, error))
    fail(ErrorKind::io, "{}: is a folder, expected the name of a file to write", target.string());
  const OutputFile probe(target);  // leaves nothing behind
}

void write_text_file(const fs::path& target, std::string_view text) {
  OutputFile file(target);
  file.write(text);
  file.commit();
}

OutputDirectory::OutputDirectory(const fs::path& target, bool overwrite, Unfinished unfinished)
    : name_(target.string()), target_(resolve(target)), unfinished_(unfinished) {
  std::error_code error;
  if (fs::exists(target_, error)) {
    if (!fs::is_directory(target_, error))
      fail(ErrorKind::io, "{}: exists and is not a folder; choose another name for the output", name_);
    if (!fs::is_empty(target_, error)) {
      if (!overwrite)
        fail(ErrorKind::io, "{}: exists and is not empty; choose another name or give --overwrite", name_);
      if (!fs::exists(target_ / "config.json", error))
        fail(ErrorKind::io,
             "{}: is not overwritten, since it holds other files than a model (there is no config.json)",
             name_);
      for (const auto& entry : fs::directory_iterator(target_, error)) {
        const fs::path extension = entry.path().extension();
        if (!entry.is_regular_file(error) ||
            (extension != ".json" && extension != ".safetensors" && extension != ".model" &&
             extension != ".txt" && extension != ".jinja"))
          fail(ErrorKind::io, "{}: is not overwritten, since it holds {}, which is no part of a model", name_,
               entry.path().filename().string());
      }
    }
  }
  if (unfinished_ == Unfinished::keep) {
    temporary_ = target_.parent_path() / ("." + target_.filename().string() + ".unfinished");
    if (::mkdir(temporary_.c_str(), 0777) != 0 && errno != EEXIST) fail_write(name_, errno);
    return;
  }
  temporary_ = temporary_name(target_);
  register_temporary(temporary_);
  if (::mkdir(temporary_.c_str(), 0777) != 0) {
    const int code = errno;
    settle_temporary(temporary_, [] {});
    fail_write(name_, code);
  }
}

OutputDirectory::~OutputDirectory() {
  if (committed_ || unfinished_ == Unfinished::keep) return;
  settle_temporary(temporary_, [&] {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  });
}

void OutputDirectory::commit() {
  HB_DCHECK(!committed_);
  const fs::path old = temporary_name(target_);
  settle_temporary(temporary_, [&] {
    // Renaming onto an empty folder replaces it; onto a full one (overwrite) it fails, and the old one steps
    // aside.
    if (::rename(temporary_.c_str(), target_.c_str()) == 0) return;
    if (errno != ENOTEMPTY && errno != EEXIST) fail_write(name_, errno);
    if (::rename(target_.c_str(), old.c_str()) != 0) fail_write(name_, errno);
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
      const int code = errno;
      ::rename(old.c_str(), target_.c_str());
      fail_write(name_, code);
    }
  });
  committed_ = true;
  std::error_code ignored;
  fs::remove_all(old, ignored);
}

}  // namespace halfbyte
