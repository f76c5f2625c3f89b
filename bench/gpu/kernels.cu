// An empty kernel, a byte comparison and a generator of random bytes.
#include <cuda_runtime_api.h>

#include "bench/gpu/kernels.h"

namespace halfbyte::bench {

namespace {

__global__ void nothing() {}

__global__ void compare(const std::uint8_t* a, const std::uint8_t* b, std::int64_t bytes,
                        unsigned long long* count) {
  unsigned long long different = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < bytes;
       i += stride)
    different += a[i] != b[i];
  if (different) atomicAdd(count, different);
}

__global__ void __launch_bounds__(512) read(const uint4* data, std::int64_t count, std::uint32_t* sink) {
  constexpr int kUnroll = 8;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * 512;
  std::uint32_t mixed = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 512 + threadIdx.x; i < count;
       i += kUnroll * stride) {
    uint4 v[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (i + u * stride < count) v[u] = __ldg(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) mixed ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (mixed == 0x5EED1234u) *sink = mixed;
}

// splitmix64 of the position.
__global__ void random(std::uint8_t* data, std::int64_t bytes, std::uint64_t seed) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t word = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; word * 8 < bytes;
       word += stride) {
    std::uint64_t z = seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(word) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    for (int i = 0; i < 8 && word * 8 + i < bytes; ++i)
      data[word * 8 + i] = static_cast<std::uint8_t>(z >> (8 * i));
  }
}

}  // namespace

int launch_nothing(cuda::Stream stream) {
  nothing<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

int launch_compare(const void* a, const void* b, std::int64_t bytes, unsigned long long* count,
                   cuda::Stream stream) {
  compare<<<1056, 256, 0, stream>>>(static_cast<const std::uint8_t*>(a), static_cast<const std::uint8_t*>(b),
                                    bytes, count);
  return cudaGetLastError();
}

int launch_read(const void* data, std::int64_t bytes, std::uint32_t* sink, cuda::Stream stream) {
  read<<<264, 512, 0, stream>>>(static_cast<const uint4*>(data), bytes / 16, sink);
  return cudaGetLastError();
}

int launch_random(void* data, std::int64_t bytes, std::uint64_t seed, cuda::Stream stream) {
  random<<<1056, 256, 0, stream>>>(static_cast<std::uint8_t*>(data), bytes, seed);
  return cudaGetLastError();
}

}  // namespace halfbyte::bench
