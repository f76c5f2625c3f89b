// The state of an interrupted run, in the folder it writes: run.json says which run it is, finished.txt which tensors are
// done ("SHA-256 name" a line, added after the bytes are in the file).
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/manifest.h"

namespace halfbyte {

class UnfinishedRun {
 public:
  // Clears what is not of a run with that record: all of a folder without run.json; files that are made last. Throws where
  // run.json is of another run, or another process is at work in the folder.
  UnfinishedRun(const std::filesystem::path& dir, const RunRecord& record);
  UnfinishedRun(const UnfinishedRun&) = delete;
  UnfinishedRun& operator=(const UnfinishedRun&) = delete;

  // Stored tensors that are said to be finished, with their SHA-256.
  const std::map<std::string, std::string>& finished() const { return finished_; }
  void add(const std::string& name, const std::string& sha256);
  // Removes both files: the folder is a result from here on.
  void close();

 private:
  std::filesystem::path dir_;
  std::map<std::string, std::string> finished_;
  // A file descriptor, closed with it; of the folder, the lock on it.
  struct Descriptor {
    int fd = -1;
    ~Descriptor();
  };
  Descriptor lock_, list_;
};

}  // namespace halfbyte
