#include "quantize/unfinished.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/file.h"
#include "io/output.h"

namespace halfbyte {

namespace fs = std::filesystem;

namespace {

constexpr const char *kRun = "run.json", *kFinished = "finished.txt", *kTensors = "model.safetensors";

// Throws naming the first member in which the runs differ.
void compare(const fs::path& dir, const Json& old, const Json& now, const std::string& path) {
  if (old == now) return;
  if (old.is_object() && now.is_object()) {
    for (const auto& [key, value] : now.items())
      compare(dir, old.contains(key) ? old[key] : Json(nullptr), value, path + key + ".");
    for (const auto& [key, value] : old.items())
      compare(dir, value, now.contains(key) ? now[key] : Json(nullptr), path + key + ".");
  }
  fail_input(
      "{}: an unfinished run with another {} lies there ({}, now {}); finish it with its own command, or "
      "remove "
      "that folder",
      dir.string(), path.empty() ? "record" : path.substr(0, path.size() - 1), old.dump(), now.dump());
}

}  // namespace

UnfinishedRun::UnfinishedRun(const fs::path& dir, const RunRecord& record) : dir_(dir) {
  lock_.fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_.fd < 0 || ::flock(lock_.fd, LOCK_EX | LOCK_NB) != 0)
    fail(ErrorKind::io, "{}: another process is at work there; wait for it or stop it", dir.string());
  const Json now = to_json(record);
  bool known = fs::exists(dir / kRun);
  if (known) {
    Json old;
    try {
      old = read_json_file(dir / kRun);
    } catch (const Error&) {
      known = false;  // cut off, as by a power cut: nothing there can be trusted
    }
    if (known) compare(dir, old, now, "");
  }
  // A run that was stopped between naming the finished file and the last step begins that step again.
  if (known && fs::exists(dir / kTensors))
    fs::rename(dir / kTensors, dir / (std::string(kTensors) + ".part"));
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!known || (name != kRun && name != kFinished && name != std::string(kTensors) + ".part"))
      fs::remove_all(entry.path());
  }
  if (!known) write_text_file(dir / kRun, dump_json(now));
  if (fs::exists(dir / kFinished)) {
    const std::string text = read_text_file(dir / kFinished);
    for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      if (end - begin > 65) finished_[text.substr(begin + 65, end - begin - 65)] = text.substr(begin, 64);
  }
  // Written anew: a last line that was cut off would swallow the next.
  std::string lines;
  for (const auto& [name, sum] : finished_) lines += sum + " " + name + "\n";
  write_text_file(dir / kFinished, lines);
  list_.fd = ::open((dir / kFinished).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (list_.fd < 0)
    fail(ErrorKind::io, "{}: cannot be written: {}", (dir / kFinished).string(), std::strerror(errno));
}

UnfinishedRun::Descriptor::~Descriptor() {
  if (fd >= 0) ::close(fd);
}

void UnfinishedRun::add(const std::string& name, const std::string& sha256) {
  const std::string line = sha256 + " " + name + "\n";
  if (::write(list_.fd, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    fail(ErrorKind::io, "{}: cannot be written: {}", (dir_ / kFinished).string(), std::strerror(errno));
}

void UnfinishedRun::close() {
  fs::remove(dir_ / kFinished);
  fs::remove(dir_ / kRun);
}

}  // namespace halfbyte
