// Kernels of the ladder. Each rung changes one thing about the one before it.
#include <cuda_runtime_api.h>

#include "bench/ladder/variants.h"
#include "ops/dequantize/byte_table.h"
#include "ops/dequantize/config.h"
#include "ops/dequantize/kernel_dequantize.cuh"

namespace halfbyte::ladder {

namespace {

using namespace halfbyte::cuda;

struct Levels {
  float level[16];
};
constexpr Levels make_levels() {
  Levels levels{};
  for (int code = 0; code < 16; ++code) levels.level[code] = nf4_decode(static_cast<std::uint8_t>(code));
  return levels;
}
__constant__ Levels c_levels = make_levels();
__constant__ float c_map[256];

// Rung 1: one byte a thread; the level comes out of a switch, which sends the threads of a warp different ways.
__device__ __forceinline__ float switch_level(unsigned code) {
  switch (code) {
#define HB_CASE(code)           \
  case code: {                  \
    float v = nf4_decode(code); \
    asm volatile("" : "+f"(v)); \
    return v;                   \
  }
    // clang-format off
    HB_CASE(0) HB_CASE(1) HB_CASE(2) HB_CASE(3) HB_CASE(4) HB_CASE(5) HB_CASE(6) HB_CASE(7)
    HB_CASE(8) HB_CASE(9) HB_CASE(10) HB_CASE(11) HB_CASE(12) HB_CASE(13) HB_CASE(14)
    // clang-format on
#undef HB_CASE
            default : return 1.0f;
  }
}

__device__ __forceinline__ float divided_scale(const Input& in, int element) {
  const int block = element / in.block, group = block / in.group;
  return add_rn(mul_rn(c_map[in.absmax[block]], in.nested[group]), in.offset);
}

__global__ void __launch_bounds__(256) by_switch(const __grid_constant__ Input in) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= in.elements / 2) return;
  const float scale = divided_scale(in, 2 * i);
  const unsigned byte = in.codes[i];
  reinterpret_cast<std::uint32_t*>(in.out)[i] =
      pack_bf16(mul_rn(switch_level(byte >> 4), scale), mul_rn(switch_level(byte & 15u), scale));
}

// Rung 2: the levels in constant memory, which serves one address of a warp at a time.
__global__ void __launch_bounds__(256) by_constant(const __grid_constant__ Input in) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= in.elements / 2) return;
  const float scale = divided_scale(in, 2 * i);
  const unsigned byte = in.codes[i];
  reinterpret_cast<std::uint32_t*>(in.out)[i] =
      pack_bf16(mul_rn(c_levels.level[byte >> 4], scale), mul_rn(c_levels.level[byte & 15u], scale));
}

// Rungs 3 to 5: four bytes a thread. kShared: the levels in shared memory. kShift: shifts instead of divisions.
template <bool kShared, bool kShift>
__global__ void __launch_bounds__(256)
    by_four_bytes(const __grid_constant__ Input in, int block_shift, int group_shift) {
  __shared__ float s_levels[16];
  if (kShared) {
    if (threadIdx.x < 16) s_levels[threadIdx.x] = c_levels.level[threadIdx.x];
    __syncthreads();
  }
  const float* levels = kShared ? s_levels : c_levels.level;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (4 * static_cast<std::int64_t>(i) >= in.elements / 2) return;
  const std::uint32_t word = reinterpret_cast<const std::uint32_t*>(in.codes)[i];
  std::uint32_t packed[4];
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    const int element = (4 * i + b) * 2;
    float scale;
    if (kShift) {
      const int block = element >> block_shift, group = block >> group_shift;
      scale = add_rn(mul_rn(c_map[in.absmax[block]], in.nested[group]), in.offset);
    } else {
      scale = divided_scale(in, element);
    }
    const std::uint32_t byte = word >> (8 * b) & 0xFFu;
    packed[b] = pack_bf16(mul_rn(levels[byte >> 4], scale), mul_rn(levels[byte & 15u], scale));
  }
  reinterpret_cast<uint4*>(in.out)[i] = {packed[0], packed[1], packed[2], packed[3]};
}

// Levels by byte permutation instead of a table in shared memory.
struct PermuteCodes {
  template <int kChunk>
  struct WordOf {
    using Type = std::uint32_t;
  };
  struct Table {};
  __device__ static void fill(Table&, const DequantizeParams&) {}
  template <int kChunk>
  __device__ __forceinline__ static void levels(const Table&, std::uint32_t word, float (&v)[kChunk]) {
    constexpr ByteTable kTable = ByteTable::of(nf4_decode);
    const std::uint32_t codes = (word >> 4 & 0x0F0F0F0Fu) | (word & 0x0F0F0F0Fu) << 4;
    float a[4], b[4];
    kTable.look_up(codes, a);
    kTable.look_up(codes >> 16, b);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = a[i], v[i + 4] = b[i];
  }
  __device__ static std::uint32_t code(const DequantizeParams& p, std::int64_t i) {
    return nibble(NibbleOrder::high_first, p.codes, i);
  }
};

// kWords consecutive words of 8 codes a thread: one load of 4 kWords bytes, kWords stores of 16 bytes side by side.
template <int kWords, int kThreads, int kUnroll>
__global__ void __launch_bounds__(kThreads) by_wide_loads(const __grid_constant__ DequantizeParams p) {
  using Load = std::conditional_t<kWords == 4, uint4, uint2>;
  using Codes = NibbleCodes<NibbleOrder::high_first>;
  __shared__ Codes::Table code_table;
  __shared__ ScaleDouble::Table scale_table;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kUnroll);
  const std::int64_t total = p.elements / (8 * kWords);
  Load load[kUnroll];
  ScaleDouble::Raw raw[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t i = first + u * kThreads + threadIdx.x;
    if (i < total) {
      load[u] = load_once(reinterpret_cast<const Load*>(p.codes) + i);
      raw[u] = ScaleDouble::request(p, i * (8 * kWords));
    }
  }
  Codes::fill(code_table, p);
  ScaleDouble::fill(scale_table, p);
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t i = first + u * kThreads + threadIdx.x;
    if (i < total) {
      const float scale = ScaleDouble::value(scale_table, p, raw[u]);
      const std::uint32_t* words = reinterpret_cast<const std::uint32_t*>(&load[u]);
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        float v[8];
        Codes::levels(code_table, words[w], v);
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = mul_rn(v[k], scale);
        reinterpret_cast<uint4*>(p.out)[i * kWords + w] = OutBf16::pack(v);
      }
    }
  }
}

// Decodes a block's kThreads * kUnroll words of eight codes; store(i, eight BF16 values) gets word i of the block.
template <int kThreads, int kUnroll>
__device__ void decode_block(const DequantizeParams& p, std::int64_t first, auto store) {
  using Codes = NibbleCodes<NibbleOrder::high_first>;
  __shared__ Codes::Table code_table;
  __shared__ ScaleDouble::Table scale_table;
  std::uint32_t word[kUnroll];
  ScaleDouble::Raw raw[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t i = first + u * kThreads + threadIdx.x;
    word[u] = load_once(reinterpret_cast<const std::uint32_t*>(p.codes) + i);
    raw[u] = ScaleDouble::request(p, i * 8);
  }
  Codes::fill(code_table, p);
  ScaleDouble::fill(scale_table, p);
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    float v[8];
    Codes::levels(code_table, word[u], v);
    const float scale = ScaleDouble::value(scale_table, p, raw[u]);
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = mul_rn(v[k], scale);
    store(u * kThreads + threadIdx.x, OutBf16::pack(v));
  }
}

// halfbyte's kernel with stores that ask the L2 to let go of them first.
template <int kThreads, int kUnroll>
__global__ void __launch_bounds__(kThreads) by_streaming_stores(const __grid_constant__ DequantizeParams p) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kUnroll);
  decode_block<kThreads, kUnroll>(p, first, [&](unsigned i, uint4 values) {
    store_stream(reinterpret_cast<uint4*>(p.out) + first + i, values);
  });
}

// The tile is put together in shared memory and leaves as one bulk copy.
template <int kThreads, int kUnroll>
__global__ void __launch_bounds__(kThreads) by_bulk_store(const __grid_constant__ DequantizeParams p) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) uint4 tile[kThreads * kUnroll];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kUnroll);
  decode_block<kThreads, kUnroll>(p, first, [&](unsigned i, uint4 values) { tile[i] = values; });
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto source = static_cast<std::uint32_t>(__cvta_generic_to_shared(tile));
    uint4* target = reinterpret_cast<uint4*>(p.out) + first;
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(source),
                 "r"(static_cast<std::uint32_t>(sizeof tile))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
#endif
}

unsigned blocks_for(std::int64_t items, int per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

DequantizeParams params_of(const Input& in) {
  return {.codes = in.codes,
          .scales8 = in.absmax,
          .nested = in.nested,
          .map = in.map,
          .out = in.out,
          .elements = in.elements,
          .columns = in.elements,
          .offset = in.offset,
          .block_shift = log2_of(in.block),
          .group_shift = log2_of(in.group),
          .row_of = {},
          .format = Format::nf4};
}

template <int kThreads, int kUnroll>
int launch_streaming(const Input& in, Stream stream) {
  by_streaming_stores<kThreads, kUnroll>
      <<<blocks_for(in.elements / 8, kThreads * kUnroll), kThreads, 0, stream>>>(params_of(in));
  return cudaGetLastError();
}

int launch_switch(const Input& in, Stream stream) {
  by_switch<<<blocks_for(in.elements / 2, 256), 256, 0, stream>>>(in);
  return cudaGetLastError();
}
int launch_constant(const Input& in, Stream stream) {
  by_constant<<<blocks_for(in.elements / 2, 256), 256, 0, stream>>>(in);
  return cudaGetLastError();
}
template <bool kShared, bool kShift>
int launch_four_bytes(const Input& in, Stream stream) {
  by_four_bytes<kShared, kShift>
      <<<blocks_for(in.elements / 8, 256), 256, 0, stream>>>(in, log2_of(in.block), log2_of(in.group));
  return cudaGetLastError();
}
template <class Codes, int kThreads, int kUnroll, bool kArithmetic = true>
int launch_flat(const Input& in, Stream stream) {
  dequantize_flat<Codes, ScaleDouble, OutBf16, kThreads, kUnroll, kArithmetic>
      <<<blocks_for(in.elements / 8, kThreads * kUnroll), kThreads, 0, stream>>>(params_of(in));
  return cudaGetLastError();
}
template <int kWords, int kThreads, int kUnroll>
int launch_wide(const Input& in, Stream stream) {
  by_wide_loads<kWords, kThreads, kUnroll>
      <<<blocks_for(in.elements / (8 * kWords), kThreads * kUnroll), kThreads, 0, stream>>>(params_of(in));
  return cudaGetLastError();
}
template <int kThreads, int kUnroll>
int launch_bulk(const Input& in, Stream stream) {
  by_bulk_store<kThreads, kUnroll>
      <<<blocks_for(in.elements / 8, kThreads * kUnroll), kThreads, 0, stream>>>(params_of(in));
  return cudaGetLastError();
}

using Shared = NibbleCodes<NibbleOrder::high_first>;

constexpr Variant kVariants[] = {
    {"switch", "one byte a thread, levels by a switch", launch_switch},
    {"constant", "levels in constant memory", launch_constant},
    {"vector4", "4 bytes in, 16 bytes out a thread", launch_four_bytes<false, false>},
    {"shared", "levels in shared memory", launch_four_bytes<true, false>},
    {"shift", "shifts instead of divisions", launch_four_bytes<true, true>},
    {"one_scale", "one scale for 8 codes, its map in shared memory too", launch_flat<Shared, 256, 1>},
    {"in_flight", "two independent loads a thread before the first use", launch_flat<Shared, 256, 2>},
    {"halfbyte", "512 threads: the kernel in use",
     launch_flat<Shared, kDequantizeThreads, kDequantizeUnroll>},
    {"permute", "tried: levels by byte permutation instead of shared memory",
     launch_flat<PermuteCodes, 512, 2>},
    {"wide16", "tried: 16-byte loads, 32 codes a thread", launch_wide<4, 256, 1>},
    {"streaming", "tried: stores that leave the L2 first", launch_streaming<512, 2>},
    {"bulk", "tried: tiles of 16 KB leave by bulk copy", launch_bulk<512, 2>},
    {"bytes", "the same loads and stores without arithmetic",
     launch_flat<Shared, kDequantizeThreads, kDequantizeUnroll, false>, false},
    {"bytes_1024_2", "the same, 1024 threads", launch_flat<Shared, 1024, 2, false>, false},
#define HB_SWEEP(threads, unroll)                                                                \
  {"flat_" #threads "_" #unroll, "", launch_flat<Shared, threads, unroll>, true, false}, {       \
    "bytes_" #threads "_" #unroll, "", launch_flat<Shared, threads, unroll, false>, false, false \
  }
    HB_SWEEP(128, 1),
    HB_SWEEP(128, 2),
    HB_SWEEP(128, 4),
    HB_SWEEP(128, 8),
    HB_SWEEP(256, 1),
    HB_SWEEP(256, 2),
    HB_SWEEP(256, 4),
    HB_SWEEP(256, 8),
    HB_SWEEP(512, 1),
    HB_SWEEP(512, 2),
    HB_SWEEP(512, 4),
    HB_SWEEP(512, 8),
    HB_SWEEP(1024, 1),
    HB_SWEEP(1024, 2),
    HB_SWEEP(1024, 4),
#undef HB_SWEEP
    {"permute_256_2", "", launch_flat<PermuteCodes, 256, 2>, true, false},
    {"permute_512_2", "", launch_flat<PermuteCodes, 512, 2>, true, false},
    {"wide8_256_1", "", launch_wide<2, 256, 1>, true, false},
    {"wide8_256_2", "", launch_wide<2, 256, 2>, true, false},
    {"wide8_256_4", "", launch_wide<2, 256, 4>, true, false},
    {"wide16_128_1", "", launch_wide<4, 128, 1>, true, false},
    {"wide16_256_2", "", launch_wide<4, 256, 2>, true, false},
    {"wide16_512_1", "", launch_wide<4, 512, 1>, true, false},
    {"bulk_128_4", "", launch_bulk<128, 4>, true, false},
    {"bulk_256_2", "", launch_bulk<256, 2>, true, false},
    {"bulk_256_8", "", launch_bulk<256, 8>, true, false},
    {"bulk_512_2", "", launch_bulk<512, 2>, true, false},
};

}  // namespace

std::span<const Variant> variants() { return kVariants; }

int set_constant_map(const float* map) { return cudaMemcpyToSymbol(c_map, map, 256 * sizeof(float)); }

}  // namespace halfbyte::ladder
