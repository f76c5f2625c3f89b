// A stream of its own, launches captured from it, and host memory that copies can read while the host goes on.
#pragma once

#include <cuda_runtime_api.h>

#include "device/cuda/memory.h"

namespace halfbyte::cuda {

// Ordered with the default stream, as every blocking stream.
class OwnStream {
 public:
  OwnStream() { check_status(cudaStreamCreate(&stream_), "creating a stream"); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator Stream() const { return stream_; }
  void wait() const { check_status(cudaStreamSynchronize(stream_), "waiting for the device"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// One T in pinned host memory, zero at first.
template <class T>
class Pinned {
 public:
  Pinned() {
    check_status(cudaMallocHost(reinterpret_cast<void**>(&data_), sizeof(T)), "allocating pinned memory");
    *data_ = T{};
  }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  T* operator->() const { return data_; }

 private:
  T* data_ = nullptr;
};

// Captured launches, or none.
class DecodeGraph {
 public:
  DecodeGraph() = default;
  ~DecodeGraph() { reset(); }
  DecodeGraph(const DecodeGraph&) = delete;
  DecodeGraph& operator=(const DecodeGraph&) = delete;

  explicit operator bool() const { return executable_ != nullptr; }
  void reset() {
    if (executable_) cudaGraphExecDestroy(executable_);
    executable_ = nullptr;
  }
  // What `launches` puts on the stream is recorded, not run.
  template <class Launches>
  void capture(Stream stream, Launches launches) {
    reset();
    check_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capturing a graph");
    cudaGraph_t graph = nullptr;
    try {
      launches();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    check_status(cudaStreamEndCapture(stream, &graph), "capturing a graph");
    const int status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_status(status, "making a graph");
  }
  void launch(Stream stream) const {
    check_status(cudaGraphLaunch(executable_, stream), "launching a graph");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace halfbyte::cuda
