// Products of float32 matrices rounded to BF16, summed in float32: for work on calibration text, whose sums hide that rounding.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "core/thread_pool.h"

namespace halfbyte {

// Whether this processor multiplies BF16 (AVX512-BF16, AMX). Elsewhere the rounded numbers are multiplied as float32.
bool multiplies_bf16();

// A row-major matrix rounded to BF16 (nearest even, as formats/bf16.h has it). Memory is kept from one assign() to the next.
class Bf16Matrix {
 public:
  // x [rows, columns], dense.
  void assign(const float* x, std::int64_t rows, std::int64_t columns, ThreadPool& pool);

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  const std::uint16_t* codes() const { return codes_.data(); }  // where multiplies_bf16()
  const float* values() const { return values_.data(); }        // elsewhere

 private:
  std::int64_t rows_ = 0, columns_ = 0;
  Array<std::uint16_t> codes_;
  Array<float> values_;
};

// out[M,N] = a[M,K] w[N,K]^T + bias[N] (or null). In tiles by shape alone: the same result for any number of threads.
void matmul_bf16(const Bf16Matrix& a, const Bf16Matrix& w, const float* bias, float* out, ThreadPool& pool);

// out[K,L] = a[R,K]^T b[R,L], likewise. With a and b the same matrix only tiles on and right of the diagonal are computed, and
// copied to the left of it.
void matmul_bf16_transposed(const Bf16Matrix& a, const Bf16Matrix& b, float* out, ThreadPool& pool);

}  // namespace halfbyte
