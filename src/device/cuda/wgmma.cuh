// What Hopper adds: asynchronous products of a warp group (left operand in registers, right operand in shared memory; sm_90a
// only), bulk copies, kernels that start before the one before them has ended.
#pragma once

#include <cstdint>

#include "device/cuda/mma.cuh"

namespace halfbyte::cuda {

// A matrix [columns of the product][64] of 16-bit numbers in shared memory, 128 bytes a row, whose 16-byte chunks are swapped:
// chunk c of row r lies at place c ^ (r % 8). The address must be a multiple of 1024. Adding 2 goes on by 16 numbers.
__device__ __forceinline__ std::uint64_t swizzled_matrix(std::uint32_t address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kEightRows | std::uint64_t{1} << 16 | (address & 0x3FFFFu) >> 4;
}

// Registers that products use must not change before the fence and until they are waited for.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

#define HB_ARGS(...) __VA_ARGS__
#define HB_F4(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define HB_F16(c, i) HB_F4(c, i), HB_F4(c, i + 4), HB_F4(c, i + 8), HB_F4(c, i + 12)
#define HB_F64(c, i) HB_F16(c, i), HB_F16(c, i + 16), HB_F16(c, i + 32), HB_F16(c, i + 48)
#define HB_R16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define HB_R32                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HB_R64                                                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HB_R128                                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define HB_WGMMA(type, shape, registers, operands, a0, a1, a2, a3, b)                                       \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" shape "k16.f32." type "." type " {" registers "}, {%" a0 \
               ", %" a1 ", %" a2 ", %" a3 "}, %" b ", 1, 1, 1, 0;"                                          \
               : operands                                                                                   \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix))

// c[64 x 2 kC] += a[64 x 16] b[16 x 2 kC]. Each warp has 16 rows: a and c as in mma_bf16(), c for eight columns after eight.
// b: swizzled_matrix(), whose rows are the columns of the product.
template <bool kBf16, int kC>
__device__ __forceinline__ void wgmma(float (&c)[kC], const std::uint32_t (&a)[4], std::uint64_t matrix) {
  static_assert(kC == 16 || kC == 32 || kC == 64 || kC == 128);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (kC == 16 && kBf16)
    HB_WGMMA("bf16", "32", HB_R16, HB_ARGS(HB_F16(c, 0)), "16", "17", "18", "19", "20");
  if constexpr (kC == 16 && !kBf16)
    HB_WGMMA("f16", "32", HB_R16, HB_ARGS(HB_F16(c, 0)), "16", "17", "18", "19", "20");
  if constexpr (kC == 32 && kBf16)
    HB_WGMMA("bf16", "64", HB_R32, HB_ARGS(HB_F16(c, 0), HB_F16(c, 16)), "32", "33", "34", "35", "36");
  if constexpr (kC == 32 && !kBf16)
    HB_WGMMA("f16", "64", HB_R32, HB_ARGS(HB_F16(c, 0), HB_F16(c, 16)), "32", "33", "34", "35", "36");
  if constexpr (kC == 64 && kBf16)
    HB_WGMMA("bf16", "128", HB_R64, HB_ARGS(HB_F64(c, 0)), "64", "65", "66", "67", "68");
  if constexpr (kC == 64 && !kBf16)
    HB_WGMMA("f16", "128", HB_R64, HB_ARGS(HB_F64(c, 0)), "64", "65", "66", "67", "68");
  if constexpr (kC == 128 && kBf16)
    HB_WGMMA("bf16", "256", HB_R128, HB_ARGS(HB_F64(c, 0), HB_F64(c, 64)), "128", "129", "130", "131", "132");
  if constexpr (kC == 128 && !kBf16)
    HB_WGMMA("f16", "256", HB_R128, HB_ARGS(HB_F64(c, 0), HB_F64(c, 64)), "128", "129", "130", "131", "132");
#endif
}

#undef HB_WGMMA
#undef HB_F64
#undef HB_F16
#undef HB_F4
#undef HB_ARGS
#undef HB_R16
#undef HB_R32
#undef HB_R64
#undef HB_R128

// Copies bytes (a multiple of 16) to shared memory, which the barrier counts.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}
// Arrives and makes the phase wait for so many bytes of copies.
__device__ __forceinline__ void barrier_expect(std::uint64_t* barrier, std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
#endif
}

// Programmatic dependent launch: the next kernel may start, if it was launched so; and a kernel so launched waits until the one
// before has ended and its writes are seen.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace halfbyte::cuda
