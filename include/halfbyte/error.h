// The one exception type of halfbyte: what went wrong, in a sentence that says where, found, expected and
// what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace halfbyte {

enum class ErrorKind {
  bad_input,      // a file, argument or tensor is not what it must be
  unsupported,    // well-formed, but halfbyte does not do this
  io,             // the operating system refused a read, write or rename
  device,         // an accelerator is missing or failed
  out_of_memory,  // an allocation that the input justifies did not succeed
};

// Thrown by every public function. what() is one sentence fit to be shown to a user as it is.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace halfbyte
