// Eigen cuts products to fit the caches that it finds; with these sizes it cuts, and so sums, alike everywhere.
#pragma once

#include <Eigen/Core>

namespace halfbyte {

// To be called before any product whose bytes matter; the first call counts.
inline void fix_eigen_blocking() {
  static const bool done = [] {
    Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20);
    return true;
  }();
  (void)done;
}

}  // namespace halfbyte
