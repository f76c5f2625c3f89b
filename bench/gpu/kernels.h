// Small kernels that the GPU benchmarks and tests need around the kernels they measure. Each returns a cudaError_t.
#pragma once

#include <cstdint>

#include "device/cuda/device.h"

namespace halfbyte::bench {

int launch_nothing(cuda::Stream stream);
int launch_compare(const void* a, const void* b, std::int64_t bytes, unsigned long long* count,
                   cuda::Stream stream);
// Reads bytes and does nothing with them; sink [1] keeps the compiler from leaving the loads out.
int launch_read(const void* data, std::int64_t bytes, std::uint32_t* sink, cuda::Stream stream);
int launch_random(void* data, std::int64_t bytes, std::uint64_t seed, cuda::Stream stream);

}  // namespace halfbyte::bench
