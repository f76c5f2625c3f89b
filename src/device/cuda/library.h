// A shared library of NVIDIA's that is opened at run time, so that no program of ours needs it to start.
#pragma once

#include <span>
#include <string>

namespace halfbyte::cuda {

class Library {
 public:
  // Opens the first of `names` that can be: one this process has already, or as dlopen() looks for it (LD_LIBRARY_PATH, the
  // system's folders), or in /usr/local/cuda/lib64. Throws a device error saying what `purpose` wants. Never closed again.
  Library(const char* purpose, std::span<const char* const> names);

  // Sets *function, a function pointer, to the symbol of that name. Throws a device error where the library has none.
  template <typename Function>
  void find(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(symbol(name));
  }
  const std::string& name() const { return name_; }

 private:
  void* symbol(const char* name) const;

  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace halfbyte::cuda
