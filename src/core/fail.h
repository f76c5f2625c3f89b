// Throwing halfbyte::Error with a formatted sentence, and the check for our own bugs.
#pragma once

#include <fmt/core.h>

#include <cstdlib>
#include <utility>

#include "halfbyte/error.h"

namespace halfbyte {

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace halfbyte

// A broken promise inside halfbyte, never a reaction to input: stops at once in debug builds, costs nothing
// in release.
#ifdef NDEBUG
#define HB_DCHECK(condition) ((void)0)
#else
#define HB_DCHECK(condition)                                                                           \
  ((condition) ? (void)0                                                                               \
               : (fmt::print(stderr, "{}:{}: HB_DCHECK({}) failed\n", __FILE__, __LINE__, #condition), \
                  std::abort()))
#endif
