// Tensor core products of small matrices and barriers in shared memory, as PTX has them from sm_80 on.
#pragma once

#include <cstdint>

#include "device/cuda/ptx.cuh"

namespace halfbyte::cuda {

template <int n>
struct Constant {
  static constexpr int value = n;
};

// c[16 x 8] += a[16 x 16] b[16 x 8], float32 += 16-bit. With lane = 4 g + t: a holds rows g, g + 8 at columns 2 t, 2 t + 1 and
// then the same at columns 2 t + 8, 2 t + 9; b0 and b1 hold those columns' numbers for b's column g; c rows g (0, 1) and g + 8
// (2, 3) at columns 2 t, 2 t + 1.
__device__ __forceinline__ void mma_bf16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_fp16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

// A barrier of shared memory whose threads go on after they have arrived and wait later, with the parity of the phase: 0 for the
// first, then in turn.
__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile(
      "{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(shared_address(barrier))
      : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, int parity) {
#if __CUDA_ARCH__ >= 900
#define HB_WAIT "try_wait"  // sleeps for a while
#else
#define HB_WAIT "test_wait"
#endif
  std::uint32_t done = 0;
  while (!done)
    asm volatile("{\n.reg .pred p;\nmbarrier." HB_WAIT
                 ".parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
#undef HB_WAIT
}

}  // namespace halfbyte::cuda
