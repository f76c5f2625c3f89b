// The float32 product on oneDNN, cut into fixed tiles for our own threads.
#include <dnnl.h>
#include <omp.h>

#include "core/fail.h"
#include "core/shape.h"
#include "ops/matmul_f32/config.h"
#include "ops/matmul_f32/op.h"

namespace halfbyte {

namespace {

// beta 1 adds to what out holds: the way the bias comes in.
void sgemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
           std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  omp_set_num_threads(1);  // per calling thread: the library must not start threads of its own inside a tile
  const dnnl_status_t status = dnnl_sgemm(trans_a, trans_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  if (status != dnnl_success)
    fail(ErrorKind::unsupported, "oneDNN refused a {} x {} x {} product (status {})", m, n, k,
         static_cast<int>(status));
}

}  // namespace

void matmul_f32_serial(const MatmulF32& args) {
  if (args.m <= 0 || args.n <= 0) return;
  if (args.bias) {
    for (std::int64_t i = 0; i < args.m; ++i)
      std::copy(args.bias, args.bias + args.n, args.out + i * args.out_stride);
  }
  sgemm('N', 'T', args.m, args.n, args.k, args.activation, args.activation_stride, args.weight,
        args.weight_stride, args.bias ? 1.0f : 0.0f, args.out, args.out_stride);
}

void matmul_f32(const MatmulF32& args, ThreadPool& pool) {
  if (args.m <= 0 || args.n <= 0) return;
  const MatmulF32Tile tile = matmul_f32_tile(args.m, args.n);
  const std::int64_t rows = ceil_div(args.m, tile.m), columns = ceil_div(args.n, tile.n);
  pool.parallel_for(rows * columns, [&](std::int64_t item) {
    const std::int64_t i = item / columns * tile.m, j = item % columns * tile.n;
    MatmulF32 part = args;
    part.m = std::min(tile.m, args.m - i);
    part.n = std::min(tile.n, args.n - j);
    part.activation += i * args.activation_stride;
    part.weight += j * args.weight_stride;
    if (part.bias) part.bias += j;
    part.out += i * args.out_stride + j;
    matmul_f32_serial(part);
  });
}

void matmul_nn_serial(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                      const float* b, std::int64_t b_stride, float* out, std::int64_t out_stride) {
  sgemm('N', 'N', m, n, k, a, a_stride, b, b_stride, 0.0f, out, out_stride);
}

void matmul_tn_serial(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                      const float* b, std::int64_t b_stride, float* out, std::int64_t out_stride) {
  sgemm('T', 'N', m, n, k, a, a_stride, b, b_stride, 0.0f, out, out_stride);
}

}  // namespace halfbyte
