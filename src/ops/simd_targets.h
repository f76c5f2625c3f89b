// The instruction sets that Highway code of halfbyte is compiled for. Include before any Highway header.
// On x86 AVX-512, AVX2 and plain C++ for older machines: every further target compiles the same file once
// more, and machines with SSE4 but without AVX2 are rare. Scalable vectors are left out: the code keeps
// vectors in arrays.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
