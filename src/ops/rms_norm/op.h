// out[r,k] = x[r,k] / sqrt(mean over k of x[r,k]^2 + eps) * weight[k]: the norm before attention, MLP and
// head.
#pragma once

#include <cstdint>

#include "core/thread_pool.h"

namespace halfbyte {

struct RmsNorm {
  std::int64_t rows = 0, columns = 0;
  const float* x = nullptr;  // [rows, columns], row stride x_stride
  std::int64_t x_stride = 0;
  const float* weight = nullptr;  // [columns]
  float eps = 0;
  float* out = nullptr;  // [rows, columns], row stride out_stride; may be x
  std::int64_t out_stride = 0;
};

void rms_norm(const RmsNorm& args, ThreadPool& pool);

}  // namespace halfbyte
