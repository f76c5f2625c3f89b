// out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]: the activation of the llama MLP.
#pragma once

#include <cstdint>

#include "core/thread_pool.h"

namespace halfbyte {

// All arrays hold `size` floats; out may be gate.
void silu_mul(const float* gate, const float* up, float* out, std::int64_t size, ThreadPool& pool);

}  // namespace halfbyte
