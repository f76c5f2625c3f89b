#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention/op.h"

namespace halfbyte {

void attention_reference(const Attention& args) {
  const std::int64_t group = args.heads / args.kv_heads, dim = args.head_dim;
  const std::int64_t kv_stride = args.kv_heads * dim;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const std::int64_t last = args.first_position + r;
    const std::int64_t first = args.window > 0 ? std::max<std::int64_t>(0, last - args.window + 1) : 0;
    for (std::int64_t h = 0; h < args.heads; ++h) {
      const float* q = args.q + r * args.q_stride + h * dim;
      const float* k = args.k + h / group * dim;
      const float* v = args.v + h / group * dim;
      std::vector<double> scores;
      for (std::int64_t p = first; p <= last; ++p) {
        double dot = 0;
        for (std::int64_t i = 0; i < dim; ++i) dot += static_cast<double>(q[i]) * k[p * kv_stride + i];
        scores.push_back(dot * args.scale);
      }
      const double largest = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - largest);
      for (std::int64_t i = 0; i < dim; ++i) {
        double value = 0;
        for (std::int64_t p = first; p <= last; ++p)
          value += scores[static_cast<std::size_t>(p - first)] * v[p * kv_stride + i];
        args.out[(r * args.heads + h) * dim + i] = static_cast<float>(value / sum);
      }
    }
  }
}

}  // namespace halfbyte
