// Which CUDA device there is, asked without CUDA headers: for the registry, the command line and the tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

struct CUstream_st;

namespace halfbyte::cuda {

using Stream = CUstream_st*;  // cudaStream_t; null is the default stream

struct DeviceInfo {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::int64_t memory = 0, l2 = 0;  // bytes
};

// True where this build has the CUDA kernels in it.
bool built();

// The current device, or nothing where there is none or no driver.
std::optional<DeviceInfo> device_info();

// True where a device is there and this build has code for it.
bool available();

// Throws a device error that says what is missing: a build with CUDA, a driver, a device, code for that device.
void require_device(const char* what);

// Throws where status, a cudaError_t, is not success: out_of_memory or device.
void check_status(int status, const char* what);

// What the runtime says about a cudaError_t: name and text.
struct StatusText {
  const char* name;
  const char* text;
  bool out_of_memory;
};
StatusText status_text(int status);

}  // namespace halfbyte::cuda
