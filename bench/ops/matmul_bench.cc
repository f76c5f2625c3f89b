// GFLOP/s of the float32 product on the shapes of SmolLM2 and on a large square one: the machine's own sgemm rate, against
// which "halfbyte eval" reports its own.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "core/tensor.h"
#include "core/thread_pool.h"
#include "ops/matmul_f32/op.h"

namespace halfbyte {
namespace {

Array<float> noise(std::int64_t size, unsigned seed) {
  Array<float> values(size);
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (float& value : values) value = uniform(generator);
  return values;
}

void bench(benchmark::State& state) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  ThreadPool pool(available_cores());
  const Array<float> a = noise(m * k, 1), w = noise(n * k, 2);
  Array<float> out(m * n);
  MatmulF32 args{.m = m,
                 .n = n,
                 .k = k,
                 .activation = a.data(),
                 .activation_stride = k,
                 .weight = w.data(),
                 .weight_stride = k,
                 .bias = nullptr,
                 .out = out.data(),
                 .out_stride = n};
  matmul_f32(args, pool);
  double expected = 0;
  for (std::int64_t i = 0; i < k; ++i)
    expected += static_cast<double>(a[(m - 1) * k + i]) * w[(n - 1) * k + i];
  if (std::abs(out[m * n - 1] - expected) > 1e-3) {
    std::fprintf(stderr, "the product is wrong\n");
    std::exit(1);
  }
  for (auto _ : state) matmul_f32(args, pool);
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
}

// M, N, K: a window through q, k, gate, down and the head, the square that gives the machine's rate, one token.
BENCHMARK(bench)
    ->UseRealTime()
    ->ArgNames({"M", "N", "K"})
    ->Args({2048, 576, 576})
    ->Args({2048, 192, 576})
    ->Args({2048, 1536, 576})
    ->Args({2048, 576, 1536})
    ->Args({256, 49152, 576})
    ->Args({2048, 2048, 2048})
    ->Args({1, 1536, 576});

}  // namespace
}  // namespace halfbyte

BENCHMARK_MAIN();
