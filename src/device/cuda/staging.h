// Copies from pageable memory, a mapped file above all, to the device through pinned buffers: the next piece is read while the
// last one is on its way.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "device/cuda/memory.h"

namespace halfbyte::cuda {

class Staging {
 public:
  Staging() {
    for (Half& half : halves_) {
      check_status(cudaMallocHost(&half.pinned, kBytes), "allocating pinned memory");
      check_status(cudaEventCreateWithFlags(&half.done, cudaEventDisableTiming), "creating an event");
    }
  }
  ~Staging() {
    for (const Half& half : halves_) {
      cudaEventDestroy(half.done);
      cudaFreeHost(half.pinned);
    }
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // On the default stream; host may be freed at once.
  void copy(const void* host, std::size_t bytes, void* device) {
    for (std::size_t at = 0; at < bytes; at += kBytes) {
      Half& half = halves_[next_ ^= 1];
      check_status(cudaEventSynchronize(half.done), "waiting for a copy");
      const std::size_t now = std::min(kBytes, bytes - at);
      std::memcpy(half.pinned, static_cast<const char*>(host) + at, now);
      check_status(cudaMemcpyAsync(static_cast<char*>(device) + at, half.pinned, now, cudaMemcpyHostToDevice),
                   "copying between host and device");
      check_status(cudaEventRecord(half.done), "recording an event");
    }
  }

  // A device copy of host's elements.
  template <typename T>
  Buffer<T> upload(std::span<const T> host) {
    Buffer<T> buffer(static_cast<std::int64_t>(host.size()));
    copy(host.data(), host.size_bytes(), buffer.data());
    return buffer;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{16} << 20;
  struct Half {
    void* pinned = nullptr;
    cudaEvent_t done = nullptr;
  };
  Half halves_[2];
  std::size_t next_ = 0;
};

}  // namespace halfbyte::cuda
