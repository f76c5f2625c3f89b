// mmap and the reading of small files.
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/fail.h"
#include "io/file.h"

namespace halfbyte {

namespace {

// An open regular file. O_NONBLOCK keeps a named pipe from blocking before it is refused.
struct OpenFile {
  explicit OpenFile(const std::filesystem::path& path) {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) fail(ErrorKind::io, "{}: cannot be opened: {}", path.string(), std::strerror(errno));
    struct stat info {};
    const char* trouble = nullptr;
    if (::fstat(fd, &info) != 0)
      trouble = std::strerror(errno);
    else if (S_ISDIR(info.st_mode))
      trouble = "it is a directory";
    else if (!S_ISREG(info.st_mode))
      trouble = "it is not a regular file";
    if (trouble) {
      ::close(fd);
      fail(ErrorKind::io, "{}: cannot be read as a file: {}", path.string(), trouble);
    }
    size = info.st_size;
  }
  ~OpenFile() { ::close(fd); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int fd = -1;
  std::int64_t size = 0;
};

// The pages that lie wholly inside [begin, end), or with outer those that touch it.
void advise(std::span<const std::byte> part, int advice, bool outer) {
  if (part.empty()) return;
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  auto end = begin + part.size();
  if (outer) {
    begin = begin / page * page;
  } else {
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
  }
  // Only a hint: a kernel that refuses it changes nothing but speed or memory.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path.string()) {
  const OpenFile file(path);
  map(file.fd, 0, file.size);
}

MappedFile::MappedFile(const std::filesystem::path& path, std::int64_t begin, std::int64_t size)
    : path_(path.string()) {
  const OpenFile file(path);
  if (begin < 0 || size < 0 || begin > file.size || size > file.size - begin)
    fail_input("{}: holds {} bytes, expected {} from byte {} on; was it changed while it is read?", path_,
               file.size, size, begin);
  map(file.fd, begin, size);
}

void MappedFile::map(int fd, std::int64_t begin, std::int64_t size) {
  if (size == 0) return;
  static const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  lead_ = begin % page;
  void* map =
      ::mmap(nullptr, static_cast<std::size_t>(size + lead_), PROT_READ, MAP_PRIVATE, fd, begin - lead_);
  if (map == MAP_FAILED)
    fail(ErrorKind::io, "{}: {} bytes cannot be mapped into memory: {}", path_, size, std::strerror(errno));
  data_ = static_cast<const std::byte*>(map) + lead_;
  size_ = size;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_ - lead_), static_cast<std::size_t>(size_ + lead_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      lead_(std::exchange(other.lead_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(lead_, other.lead_);
  return *this;
}

void MappedFile::prefetch(std::span<const std::byte> part) const { advise(part, MADV_WILLNEED, true); }
void MappedFile::drop(std::span<const std::byte> part) const { advise(part, MADV_DONTNEED, false); }

std::string read_text_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  const OpenFile file(path);
  if (file.size > max_bytes)
    fail_input("{}: holds {} bytes, more than the {} that such a file may have", path.string(), file.size,
               max_bytes);
  std::string text(static_cast<std::size_t>(file.size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.fd, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorKind::io, "{}: cannot be read: {}", path.string(), std::strerror(errno));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace halfbyte
