// Launch shapes of the kernels that move an op's bytes and compute nothing: the op is held against the fastest of them.
#pragma once

#include "device/cuda/bytes_shapes.h"

namespace halfbyte::cuda {

// Calls launch<threads, unroll>() for the shape of that number.
template <class Launch>
void with_bytes_shape(int shape, Launch launch) {
  static_assert(kBytesShapes == 4, "one case a shape");
  switch (shape) {
    case 0:
      return launch.template operator()<512, 2>();
    case 1:
      return launch.template operator()<256, 2>();
    case 2:
      return launch.template operator()<1024, 2>();
    default:
      return launch.template operator()<256, 4>();
  }
}

}  // namespace halfbyte::cuda
