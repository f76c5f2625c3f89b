// The seam between host and device code of fused_activation: what cuda.cu is handed by cuda.cc.
#pragma once

#include "device/cuda/device.h"
#include "ops/fused_activation/op.h"

namespace halfbyte::cuda {

// A thread block a row; a thread holds one or two sixteens (16 consecutive columns), numbers thread and thread + threads.
inline constexpr int kMostRowThreads = 1024, kMostSixteens = 2;
inline constexpr std::int64_t kMostActivationColumns = std::int64_t{16} * kMostRowThreads * kMostSixteens;

// Sixteens of a thread for rows so wide: one, where that makes at most 512 threads; and the threads.
constexpr int fused_sixteens(std::int64_t columns) { return columns <= 512 * 16 ? 1 : 2; }
constexpr int fused_threads(std::int64_t columns, int sixteens) {
  const auto wanted = static_cast<int>((columns + 16 * sixteens - 1) / (16 * sixteens));
  return (wanted + 31) / 32 * 32;
}

// What a kernel is compiled for.
enum class FusedMode : std::uint8_t {
  plain,    // BF16 and FP16 in vectors; a scale from absmax alone, codes that keep the sign
  search,   // the same with the scale search of nvfp4
  general,  // everything
};

struct FusedParams {
  FusedActivation args;  // device pointers; width filled in
  FusedMode mode = FusedMode::general;
  int sixteens = 0;             // of a thread
  int threads = 0;              // a multiple of 32
  int row_blocks = 0;           // (W + S) / block
  bool vectors = false;         // rows of x, up, residual and norm weights can be read 16 bytes at a time
  bool stage = false;           // a row of h lies in shared memory, for an order or for residual channels
  bool plain_mx = false;        // mxfp4 by a rule of mx_code_with_addend()
  bool keeps_sign = false;      // codes of small negative numbers have their sign bit
  std::uint32_t mx_addend = 0;  // of mx_code_with_addend()
};

// A cudaError_t.
int launch_fused_activation(const FusedParams& params, Stream stream);

}  // namespace halfbyte::cuda
