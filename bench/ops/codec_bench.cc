// Values a second of quantize, dequantize and fake_quantize on a 4096 x 4096 matrix, every format, after a comparison with
// the reference.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "core/thread_pool.h"
#include "ops/dequantize/op.h"
#include "ops/fake_quantize/op.h"
#include "ops/quantize/op.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kRows = 4096, kColumns = 4096;

const Array<float>& matrix() {
  static const Array<float> values = [] {
    Array<float> noise(kRows * kColumns);
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    for (float& value : noise) value = normal(generator);
    return noise;
  }();
  return values;
}

TensorView view() { return {DType::f32, {kRows, kColumns}, matrix().as_bytes()}; }

void require(bool same, const char* what) {
  if (same) return;
  std::fprintf(stderr, "%s differs from its reference\n", what);
  std::exit(1);
}

void bench_quantize(benchmark::State& state, QuantSpec spec) {
  ThreadPool pool(available_cores());
  const QuantizedTensor fast = quantize(view(), spec, pool);
  QuantizedTensor slow = make_quantized(spec, {kRows, kColumns}, DType::f32);
  slow.global_scale = fast.global_scale;
  quantize_reference({.values = view(), .extent = {kRows, kColumns}, .out = &slow, .pool = &pool});
  require(std::ranges::equal(fast.codes.span(), slow.codes.span()), "quantize");
  for (auto _ : state) benchmark::DoNotOptimize(quantize(view(), spec, pool).codes.data());
  state.SetItemsProcessed(state.iterations() * kRows * kColumns);
}

void bench_dequantize(benchmark::State& state, QuantSpec spec) {
  ThreadPool pool(available_cores());
  const QuantizedTensor tensor = quantize(view(), spec, pool);
  Array<float> slow(kRows * kColumns), out(kRows * kColumns);
  dequantize_reference(
      {.tensor = &tensor, .columns = kColumns, .first = 0, .last = kRows * kColumns, .out = slow.data()});
  const auto run = [&] {
    dequantize_rows(tensor, 0, kRows, DType::f32, std::as_writable_bytes(out.span()), pool);
  };
  run();
  require(std::ranges::equal(out.span(), slow.span()), "dequantize");
  for (auto _ : state) run();
  state.SetItemsProcessed(state.iterations() * kRows * kColumns);
}

void bench_fake_quantize(benchmark::State& state, QuantSpec spec) {
  ThreadPool pool(available_cores());
  Array<float> slow(kRows * kColumns), out(kRows * kColumns);
  FakeQuantize args{.rows = kRows,
                    .columns = kColumns,
                    .x = matrix().data(),
                    .x_stride = kColumns,
                    .out = slow.data(),
                    .out_stride = kColumns,
                    .spec = spec,
                    .scope = ScaleScope::tensor,
                    .global_scale = {}};
  fake_quantize_reference(args, pool);
  args.out = out.data();
  fake_quantize(args, pool);
  require(std::ranges::equal(out.span(), slow.span()), "fake_quantize");
  for (auto _ : state) fake_quantize(args, pool);
  state.SetItemsProcessed(state.iterations() * kRows * kColumns);
}

void add(const QuantSpec& spec) {
  const std::string name = to_string(spec);
  benchmark::RegisterBenchmark(("quantize/" + name).c_str(), bench_quantize, spec)->UseRealTime();
  benchmark::RegisterBenchmark(("dequantize/" + name).c_str(), bench_dequantize, spec)->UseRealTime();
  if (spec.format != Format::nf4 && spec.format != Format::fp4)
    benchmark::RegisterBenchmark(("fake_quantize/" + name).c_str(), bench_fake_quantize, spec)->UseRealTime();
}

}  // namespace
}  // namespace halfbyte

int main(int argc, char** argv) {
  using halfbyte::Format;
  for (const Format format : {Format::nf4, Format::fp4, Format::nvfp4, Format::mxfp4, Format::mxfp8_e4m3,
                              Format::int4, Format::int8})
    halfbyte::add({.format = format});
  halfbyte::add({.format = Format::nf4, .double_quant = true});
  halfbyte::add({.format = Format::nvfp4, .four_six = true});
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
