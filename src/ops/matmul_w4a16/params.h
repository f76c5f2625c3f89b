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

// The weights and what their values are made of, for every kernel.
struct W4Params {
  const std::uint8_t* tiles = nullptr;  // layout.h
  const void* bias = nullptr;           // [rows], may be null
  int rows = 0, columns = 0;
  int row_tiles = 0, column_tiles = 0;
  const float* global_scale = nullptr;  // [1], or null
  bool global_divides = false;
  // Double quantization: absmax = map[code] * nested[group] + offset.
  const float* nested = nullptr;
  const float* map = nullptr;
  float offset = 0.0f;
  unsigned last_group = 0;        // of absmax values
  int group_shift = 0;            // 32 columns a unit: log2 of the units in a group
  std::uint16_t levels[16] = {};  // of the codes, in the type of the activations
  float exact_levels[16] = {};
  bool high_first = false;  // the first code of a byte is its upper half
};

struct SmallMParams : W4Params {
  const void* activations = nullptr;  // [m, columns]
  void* out = nullptr;                // [m, rows]
  int m = 0;                          // at most 16
  SmallMShape shape;
  unsigned* counters = nullptr;  // [groups], zero before and after
  float* partial = nullptr;      // [splits][m][rows]
};

struct WideParams : W4Params {
  const void* activations = nullptr;  // [m, columns]
  void* arranged = nullptr;  // [column_tiles][m_padded][64], see kernel_wide.cuh; written by the first kernel
  void* out = nullptr;       // [m, rows]
  std::int64_t m = 0, m_padded = 0;
  WideShape shape;
  unsigned* counters = nullptr;  // [row_blocks * m_blocks], zero before and after
  float* partial = nullptr;      // [splits][m][rows]
};

}  // namespace halfbyte::cuda
