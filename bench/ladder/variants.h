// The rungs of the NF4 dequantization ladder: doubly quantized NF4 to BF16, from a switch statement to the kernel that
// halfbyte uses.
#pragma once

#include <cstdint>
#include <span>

#include "device/cuda/device.h"

namespace halfbyte::ladder {

// All pointers on the device.
struct Input {
  const std::uint8_t* codes = nullptr;   // [elements / 2], high nibble first
  const std::uint8_t* absmax = nullptr;  // [elements / block], codes of double quantization
  const float* nested = nullptr;         // [blocks / group]
  const float* map = nullptr;            // [256]
  float offset = 0.0f;
  int block = 64, group = 256;
  std::int64_t elements = 0;  // a multiple of 16384 below 2^31
  std::uint16_t* out = nullptr;
};

struct Variant {
  const char* name;
  const char* idea;
  int (*launch)(const Input&, cuda::Stream);  // returns a cudaError_t
  bool computes = true;                       // false: moves the bytes only
  bool listed = true;                         // false: only with --sweep
};

std::span<const Variant> variants();

// Puts map into the constant memory that the first rungs read it from.
int set_constant_map(const float* map);

}  // namespace halfbyte::ladder
