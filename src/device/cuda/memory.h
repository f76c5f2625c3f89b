// Device memory with an owner, copies to and from it, and a timer of events.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "device/cuda/device.h"

namespace halfbyte::cuda {

// size elements of T on the current device, not initialised.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size) : size_(size) {
    if (size > 0)
      check_status(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(size) * sizeof(T)),
                   "allocating device memory");
  }
  explicit Buffer(std::span<const T> host) : Buffer(static_cast<std::int64_t>(host.size())) {
    if (size_)
      check_status(cudaMemcpy(data_, host.data(), host.size_bytes(), cudaMemcpyHostToDevice),
                   "copying between host and device");
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() const { return data_; }
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * sizeof(T); }
  void fill(int byte) { check_status(cudaMemset(data_, byte, bytes()), "filling device memory"); }
  // host must hold exactly size() elements.
  void download(std::span<T> host) const {
    HB_DCHECK(static_cast<std::int64_t>(host.size()) == size_);
    if (size_)
      check_status(cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost),
                   "copying between host and device");
  }
  std::vector<T> download() const {
    std::vector<T> host(static_cast<std::size_t>(size_));
    download(std::span<T>(host));
    return host;
  }

 private:
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

// Milliseconds between start() and stop() on the default stream.
class Timer {
 public:
  Timer() {
    check_status(cudaEventCreate(&start_), "creating an event");
    check_status(cudaEventCreate(&stop_), "creating an event");
  }
  ~Timer() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void start() { check_status(cudaEventRecord(start_), "recording an event"); }
  void stop() { check_status(cudaEventRecord(stop_), "recording an event"); }
  float milliseconds() const {
    check_status(cudaEventSynchronize(stop_), "waiting for an event");
    float ms = 0;
    check_status(cudaEventElapsedTime(&ms, start_, stop_), "reading a timer");
    return ms;
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

}  // namespace halfbyte::cuda
