// Opens shared libraries at run time.
#include "device/cuda/library.h"

#include <dlfcn.h>

#include "core/fail.h"

namespace halfbyte::cuda {

Library::Library(const char* purpose, std::span<const char* const> names) {
  for (const std::string folder : {"", "/usr/local/cuda/lib64/"})
    for (const char* name : names) {
      name_ = folder + name;
      handle_ = dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_) return;
    }
  fail(ErrorKind::device, "{} needs {}, which was not found; put its folder on LD_LIBRARY_PATH", purpose,
       names[0]);
}

void* Library::symbol(const char* name) const {
  void* found = dlsym(handle_, name);
  if (!found) fail(ErrorKind::device, "{} has no function {}; is it older than CUDA 12?", name_, name);
  return found;
}

}  // namespace halfbyte::cuda
