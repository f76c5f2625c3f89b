// Rows of an embedding table on a CUDA device: out[r, :] = table[ids[r], :], widened to float32.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "device/cuda/device.h"

namespace halfbyte::cuda {

// Every pointer is on the device; ids must lie within the table.
struct GatherRows {
  std::int64_t rows = 0, columns = 0;
  const std::int32_t* ids = nullptr;  // [rows]
  DType dtype = DType::f32;           // of the table: f32, bf16 or f16
  const void* table = nullptr;        // [vocab, columns]
  float* out = nullptr;               // [rows, columns]
};

// Returns a cudaError_t.
int gather_rows(const GatherRows& args, Stream stream);

}  // namespace halfbyte::cuda
