// Attention as two small products a block of rows: scores of the keys the block can see, softmax, values.
#include <algorithm>
#include <vector>

#include "core/shape.h"
#include "core/tensor.h"
#include "ops/attention/op.h"
#include "ops/matmul_f32/op.h"
#include "ops/row_math/op.h"

namespace halfbyte {

namespace {

// 128 rows: the causal corner a block computes in vain is 3 % of a window of 2048, and the product still runs
// at full rate.
constexpr std::int64_t kBlockRows = 128;

// Rows [begin, end) of one head. scores holds kBlockRows * (positions seen by the block) floats.
void attend(const Attention& args, std::int64_t head, std::int64_t begin, std::int64_t end, float* scores) {
  const std::int64_t dim = args.head_dim, kv_stride = args.kv_heads * dim;
  const std::int64_t last = args.first_position + end;  // one past the newest key the block sees
  const std::int64_t first =
      args.window > 0 ? std::max<std::int64_t>(0, args.first_position + begin - args.window + 1) : 0;
  const std::int64_t rows = end - begin, keys = last - first;
  const std::int64_t kv_offset = first * kv_stride + head / (args.heads / args.kv_heads) * dim;

  matmul_f32_serial({.m = rows,
                     .n = keys,
                     .k = dim,
                     .activation = args.q + begin * args.q_stride + head * dim,
                     .activation_stride = args.q_stride,
                     .weight = args.k + kv_offset,
                     .weight_stride = kv_stride,
                     .out = scores,
                     .out_stride = keys});
  std::vector<float> factors(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * keys;
    const std::int64_t position = args.first_position + begin + r;
    const std::int64_t from =
        args.window > 0 ? std::max<std::int64_t>(0, position - args.window + 1 - first) : 0;
    const std::int64_t to = position + 1 - first;
    std::fill(row, row + from, 0.0f);
    std::fill(row + to, row + keys, 0.0f);
    const float shift = row_max(row + from, to - from) * args.scale;
    factors[static_cast<std::size_t>(r)] =
        static_cast<float>(1.0 / exp_row(row + from, to - from, args.scale, shift));
  }
  float* out = args.out + (begin * args.heads + head) * dim;
  matmul_nn_serial(rows, dim, keys, scores, keys, args.v + kv_offset, kv_stride, out, args.heads * dim);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < dim; ++i)
      out[r * args.heads * dim + i] *= factors[static_cast<std::size_t>(r)];
}

}  // namespace

void attention(const Attention& args, ThreadPool& pool) {
  const std::int64_t blocks = ceil_div(args.rows, kBlockRows);
  pool.parallel_for(blocks * args.heads, [&](std::int64_t item) {
    // Longest blocks first, so that the last item handed out is a short one.
    const std::int64_t block = blocks - 1 - item / args.heads, head = item % args.heads;
    const std::int64_t begin = block * kBlockRows, end = std::min(args.rows, begin + kBlockRows);
    Array<float> scores((end - begin) * (args.first_position + end));
    attend(args, head, begin, end, scores.data());
  });
}

}  // namespace halfbyte
