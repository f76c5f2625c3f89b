// From the kind of scales and the type of activations, known when a product is called, to the kernels made for them.
#pragma once

#include "ops/matmul_w4a16/kernel_w4.cuh"
#include "ops/matmul_w4a16/launch.h"

namespace halfbyte::cuda {

// Calls run<Act, Scales>().
template <class Act, class Run>
void with_scales(W4Scales scales, Run run) {
  switch (scales) {
    case W4Scales::e4m3_sixteens:
      return run.template operator()<Act, ScalesInWeights>();
    case W4Scales::e8m0_halves:
      return run.template operator()<Act, ScalesE8m0>();
    case W4Scales::f32:
      return run.template operator()<Act, ScalesF32<1>>();
    case W4Scales::f32_halves:
      return run.template operator()<Act, ScalesF32<2>>();
    case W4Scales::nested_rows:
      return run.template operator()<Act, ScalesNestedRows>();
    case W4Scales::nested:
      return run.template operator()<Act, ScalesNested<1>>();
    case W4Scales::nested_halves:
      return run.template operator()<Act, ScalesNested<2>>();
  }
}

template <class Run>
void with_scales(W4Scales scales, DType dtype, Run run) {
  if (dtype == DType::bf16) with_scales<ActBf16>(scales, run);
  if (dtype == DType::f16) with_scales<ActFp16>(scales, run);
}

}  // namespace halfbyte::cuda
