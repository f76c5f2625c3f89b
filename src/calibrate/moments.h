// Products of inputs with themselves, summed over tokens.
#pragma once

#include <cstdint>

#include "core/thread_pool.h"

namespace halfbyte {

// out [K, K] = x^T x of x [rows, K], symmetric. Float32 sums, the same for any number of threads.
void second_moment(const float* x, std::int64_t rows, std::int64_t columns, float* out, ThreadPool& pool);

// out [K, K] = y^T x of x, y [rows, K], the same.
void cross_moment(const float* y, const float* x, std::int64_t rows, std::int64_t columns, float* out,
                  ThreadPool& pool);

}  // namespace halfbyte
