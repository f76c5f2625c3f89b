// What the products of a model on a CUDA device are made in.
#pragma once

#include <cstdint>

namespace halfbyte {

enum class CudaArithmetic : std::uint8_t {
  f32,  // float32 throughout: what the CPU computes, but for the order of sums. 4-bit weights are decoded where they are needed
  f16,  // inputs of 4-bit weights in FP16, products on tensor cores from the codes: for speed
};

struct CudaOptions {
  CudaArithmetic arithmetic = CudaArithmetic::f32;
  bool graph = true;  // single tokens run as a captured graph
};

}  // namespace halfbyte
