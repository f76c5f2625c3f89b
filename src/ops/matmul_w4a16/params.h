// What the matmul_w4a16 kernels are launched with.
#pragma once

#include <cstdint>

#include "ops/matmul_w4a16/config.h"
#include "ops/matmul_w4a16/layout.h"

namespace halfbyte::cuda {

struct PackW4Params {
  W4Layout layout;
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales8 = nullptr;
  const float* scales = nullptr;
  std::uint8_t* tiles = nullptr;
};

struct SmallMParams {
  const std::uint8_t* tiles = nullptr;  // layout.h
  const void* activations = nullptr;    // [m, columns]
  const void* bias = nullptr;           // [rows], may be null
  void* out = nullptr;                  // [m, rows]
  int m = 0, rows = 0, columns = 0;     // m <= 16
  int row_tiles = 0, column_tiles = 0;
  SmallMShape shape;
  unsigned* counters = nullptr;         // [groups], zero before and after
  float* partial = nullptr;             // [splits][m][rows]
  const float* global_scale = nullptr;  // [1], or null
  bool global_divides = false;
  // Double quantization: absmax = map[code] * nested[group] + offset.
  const float* nested = nullptr;
  const float* map = nullptr;
  float offset = 0.0f;
  unsigned last_group = 0;        // of absmax values
  int group_shift = 0;            // 32 columns a unit: log2 of the units in a group
  std::uint16_t levels[16] = {};  // of the codes, in the type of the activations
  bool high_first = false;        // the first code of a byte is its upper half
};

}  // namespace halfbyte::cuda
