// A folder for one test's files, removed afterwards, and the message of the error that a call must throw.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "halfbyte/error.h"

namespace halfbyte::test {

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "halfbyte-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("cannot create a folder for the test");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::filesystem::remove(path_ / name);  // cheaper than truncating: some file systems flush after that
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  std::size_t entries() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::recursive_directory_iterator(path_)) ++count;
    return count;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Thrown {
  ErrorKind kind;
  std::string message;
};

// The Error that the call throws, or nothing when it returns.
inline std::optional<Thrown> thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return Thrown{error.kind(), error.what()};
  }
  return std::nullopt;
}

inline std::string message_of(const std::function<void()>& call) {
  const auto thrown = thrown_by(call);
  return thrown ? thrown->message : "(nothing was thrown)";
}

}  // namespace halfbyte::test
