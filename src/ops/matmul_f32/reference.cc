#include "ops/matmul_f32/op.h"

namespace halfbyte {

void matmul_f32_reference(const MatmulF32& args) {
  for (std::int64_t i = 0; i < args.m; ++i) {
    for (std::int64_t j = 0; j < args.n; ++j) {
      const float* a = args.activation + i * args.activation_stride;
      const float* w = args.weight + j * args.weight_stride;
      double sum = args.bias ? args.bias[j] : 0.0;
      for (std::int64_t c = 0; c < args.k; ++c) sum += static_cast<double>(a[c]) * w[c];
      args.out[i * args.out_stride + j] = static_cast<float>(sum);
    }
  }
}

}  // namespace halfbyte
