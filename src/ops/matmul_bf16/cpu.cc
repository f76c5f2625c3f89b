// Products of BF16 matrices on oneDNN, cut into fixed tiles for our own threads.
#include <omp.h>

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <map>

#include "core/shape.h"
#include "formats/bf16.h"
#include "ops/matmul_bf16/op.h"
#include "ops/matmul_bf16/round.h"

namespace halfbyte {

namespace {

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// One tile: out[m,n] = A B, with A's rows and columns so many elements apart, and B's.
struct Tile {
  std::int64_t m, n, k;
  std::int64_t a_row, a_column, b_row, b_column, out_row;
  friend auto operator<=>(const Tile&, const Tile&) = default;
};

// oneDNN's product for tiles of that kind, made once a thread.
struct Product {
  dnnl::memory::desc a, b, out;
  dnnl::matmul matmul;
};

Product make_product(const Tile& tile, dnnl::memory::data_type type) {
  const auto f32 = dnnl::memory::data_type::f32;
  const dnnl::memory::desc a({tile.m, tile.k}, type, dnnl::memory::dims{tile.a_row, tile.a_column}),
      b({tile.k, tile.n}, type, dnnl::memory::dims{tile.b_row, tile.b_column}),
      out({tile.m, tile.n}, f32, dnnl::memory::dims{tile.out_row, 1});
  return {a, b, out, dnnl::matmul({{a, b, out}, cpu_engine()})};
}

void multiply(const Tile& tile, const void* a, const void* b, float* out) {
  omp_set_num_threads(1);  // per calling thread: the library must not start threads of its own inside a tile
  const auto type = multiplies_bf16() ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  thread_local std::map<Tile, Product> products;
  thread_local dnnl::stream stream(cpu_engine());
  constexpr std::size_t kMost = 64;
  if (products.size() > kMost) products.clear();
  auto found = products.find(tile);
  if (found == products.end()) found = products.emplace(tile, make_product(tile, type)).first;
  const Product& product = found->second;
  product.matmul.execute(stream,
                         {{DNNL_ARG_SRC, dnnl::memory(product.a, cpu_engine(), const_cast<void*>(a))},
                          {DNNL_ARG_WEIGHTS, dnnl::memory(product.b, cpu_engine(), const_cast<void*>(b))},
                          {DNNL_ARG_DST, dnnl::memory(product.out, cpu_engine(), out)}});
  stream.wait();
}

const void* element(const Bf16Matrix& matrix, std::int64_t index) {
  return multiplies_bf16() ? static_cast<const void*>(matrix.codes() + index)
                           : static_cast<const void*>(matrix.values() + index);
}

}  // namespace

bool multiplies_bf16() {
  static const bool does = [] {
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  }();
  return does;
}

void Bf16Matrix::assign(const float* x, std::int64_t rows, std::int64_t columns, ThreadPool& pool) {
  rows_ = rows;
  columns_ = columns;
  const std::int64_t size = rows * columns;
  const bool codes = multiplies_bf16();
  if (codes && codes_.size() < size) codes_ = Array<std::uint16_t>(size);
  if (!codes && values_.size() < size) values_ = Array<float>(size);
  constexpr std::int64_t kPiece = 1 << 16;
  pool.parallel_for(ceil_div(size, kPiece), [&](std::int64_t piece) {
    const std::int64_t first = piece * kPiece, last = std::min(size, first + kPiece);
    if (codes)
      encode_bf16_row(x + first, codes_.data() + first, last - first);
    else
      for (std::int64_t i = first; i < last; ++i) values_[i] = round_to_bf16(x[i]);
  });
}

void matmul_bf16(const Bf16Matrix& a, const Bf16Matrix& w, const float* bias, float* out, ThreadPool& pool) {
  constexpr std::int64_t kRows = 512, kColumns = 1024;
  const std::int64_t m = a.rows(), n = w.rows(), k = a.columns();
  const std::int64_t row_tiles = ceil_div(m, kRows), column_tiles = ceil_div(n, kColumns);
  pool.parallel_for(row_tiles * column_tiles, [&](std::int64_t item) {
    const std::int64_t i = item / column_tiles * kRows, j = item % column_tiles * kColumns;
    const std::int64_t rows = std::min(kRows, m - i), columns = std::min(kColumns, n - j);
    multiply(
        {.m = rows, .n = columns, .k = k, .a_row = k, .a_column = 1, .b_row = 1, .b_column = k, .out_row = n},
        element(a, i * k), element(w, j * k), out + i * n + j);
    if (!bias) return;
    for (std::int64_t r = i; r < i + rows; ++r)
      for (std::int64_t c = j; c < j + columns; ++c) out[r * n + c] += bias[c];
  });
}

void matmul_bf16_transposed(const Bf16Matrix& a, const Bf16Matrix& b, float* out, ThreadPool& pool) {
  constexpr std::int64_t kPanel = 192;
  const std::int64_t k = a.columns(), l = b.columns(), panels = ceil_div(k, kPanel);
  const bool symmetric = &a == &b;
  pool.parallel_for(panels, [&](std::int64_t panel) {
    const std::int64_t first = panel * kPanel, begin = symmetric ? first : 0;
    multiply({.m = std::min(kPanel, k - first),
              .n = l - begin,
              .k = a.rows(),
              .a_row = 1,
              .a_column = k,
              .b_row = l,
              .b_column = 1,
              .out_row = l},
             element(a, first), element(b, begin), out + first * l + begin);
  });
  if (!symmetric) return;
  pool.parallel_for(k, [&](std::int64_t row) {
    for (std::int64_t column = 0; column < row; ++column) out[row * k + column] = out[column * k + row];
  });
}

}  // namespace halfbyte
