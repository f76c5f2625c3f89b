// Attention over blocks of keys. Many new tokens: 64 of them and a head a thread block, keys and values through shared memory. One
// new token: a block of keys and the heads that share it a thread block; the last one to finish adds the parts up.
#include <cuda_runtime_api.h>

#include "core/shape.h"
#include "device/cuda/early.cuh"
#include "device/cuda/reduce.cuh"
#include "device/cuda/values.cuh"
#include "ops/attention/cuda.h"

namespace halfbyte::cuda {

namespace {

constexpr int kRows = 64, kKeys = 64, kThreads = 256;

// Numbers of shared memory: queries, then keys or values, one number longer a row for other banks, then scores.
template <int kDim>
constexpr int kSharedFloats = (kRows + kKeys) * (kDim + 1) + kRows*(kKeys + 1);

// Rows [first, first + 64) of one head into [64][kDim + 1]; beyond `count` rows and `dim` columns, zeros.
template <int kDim>
__device__ void load_rows(const float* from, std::int64_t stride, std::int64_t count, std::int64_t dim,
                          float* to) {
  for (int i = threadIdx.x; i < 64 * kDim; i += kThreads) {
    const int row = i / kDim, column = i % kDim;
    to[row * (kDim + 1) + column] = row < count && column < dim ? from[row * stride + column] : 0.0f;
  }
}

// Thread (y, x) of 16 x 16 holds rows 4 y to 4 y + 3: scores of keys x + 16 j, outputs x + 16 j. The sixteen threads of a row are
// half a warp.
template <int kDim>
__global__ void __launch_bounds__(kThreads) attend(const __grid_constant__ DeviceAttention p) {
  extern __shared__ float shared[];
  constexpr int kColumns = kDim / 16;
  float* queries = shared;
  float* other = queries + kRows * (kDim + 1);  // keys, then values
  float* scores = other + kKeys * (kDim + 1);   // [kRows][kKeys + 1]
  const int y = threadIdx.x / 16, x = threadIdx.x % 16;
  const std::int64_t first_row = (std::int64_t{gridDim.x} - 1 - blockIdx.x) * kRows, head = blockIdx.y;
  const std::int64_t kv_stride = p.kv_heads * p.head_dim, q_stride = p.heads * p.head_dim;
  const std::int64_t kv_offset = head / (p.heads / p.kv_heads) * p.head_dim;
  const std::int64_t rows = p.rows - first_row < kRows ? p.rows - first_row : kRows;
  const std::int64_t position = *p.first_position + first_row;  // of the block's first row
  const std::int64_t last = position + rows;                    // one past the newest key that it sees
  const std::int64_t oldest = p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
  load_rows<kDim>(p.q + first_row * q_stride + head * p.head_dim, q_stride, rows, p.head_dim, queries);

  float sums[4] = {}, largest[4], out[4][kColumns] = {};
#pragma unroll
  for (float& value : largest) value = -INFINITY;
  for (std::int64_t first = oldest; first < last; first += kKeys) {
    const std::int64_t keys = last - first < kKeys ? last - first : kKeys;
    __syncthreads();  // the values of the block before are read
    load_rows<kDim>(p.keys + first * kv_stride + kv_offset, kv_stride, keys, p.head_dim, other);
    __syncthreads();
    float s[4][4] = {};
    for (int d = 0; d < kDim; ++d) {
      float left[4], right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) left[i] = queries[(4 * y + i) * (kDim + 1) + d];
#pragma unroll
      for (int j = 0; j < 4; ++j) right[j] = other[(x + 16 * j) * (kDim + 1) + d];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) s[i][j] = fmaf(left[i], right[j], s[i][j]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t here = position + 4 * y + i;
      float top = largest[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int64_t key = first + x + 16 * j;
        const bool seen = key <= here && key < last && (p.window == 0 || key > here - p.window);
        s[i][j] = seen ? s[i][j] * p.scale : -INFINITY;
        top = fmaxf(top, s[i][j]);
      }
#pragma unroll
      for (int lane = 8; lane; lane /= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, lane));
      const float shift = top == -INFINITY ? 0.0f : top;  // nothing seen yet
      const float shrink = expf(largest[i] - shift);
      largest[i] = top;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float e = expf(s[i][j] - shift);
        scores[(4 * y + i) * (kKeys + 1) + x + 16 * j] = e;
        sum += e;
      }
#pragma unroll
      for (int lane = 8; lane; lane /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lane);
      sums[i] = sums[i] * shrink + sum;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) out[i][j] *= shrink;
    }
    __syncthreads();  // the keys are read, the scores are written
    load_rows<kDim>(p.values + first * kv_stride + kv_offset, kv_stride, keys, p.head_dim, other);
    __syncthreads();
    for (int key = 0; key < kKeys; ++key) {
      float left[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) left[i] = scores[(4 * y + i) * (kKeys + 1) + key];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const float right = other[key * (kDim + 1) + x + 16 * j];
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i][j] = fmaf(left[i], right, out[i][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (4 * y + i >= rows) continue;
    const std::int64_t to = (first_row + 4 * y + i) * q_stride + head * p.head_dim;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      if (x + 16 * j < p.head_dim) store_value(p.out, to + x + 16 * j, out[i][j] / sums[i]);
  }
}

template <int kDim>
int launch(const DeviceAttention& args, Stream stream) {
  constexpr int kBytes = kSharedFloats<kDim> * static_cast<int>(sizeof(float));
  const cudaError_t status = cudaFuncSetAttribute(reinterpret_cast<const void*>(attend<kDim>),
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  const dim3 grid(static_cast<unsigned>(ceil_div(args.rows, kRows)), static_cast<unsigned>(args.heads));
  attend<kDim><<<grid, kThreads, kBytes, stream>>>(args);
  return cudaGetLastError();
}

// One new token. Workspace: counters [kv_heads], then for each head and block of keys its largest score, the sum of exponentials
// and the sum of values [head_dim].
constexpr int kFewThreads = 128, kFewKeys = 32, kLanesAKey = 4;
constexpr int kMostShared = 8;  // heads that share keys, in one thread block
static_assert(kFewThreads == kFewKeys * kLanesAKey, "every lane has a part of one key");

struct FewParams : DeviceAttention {
  unsigned* counters;
  float* parts;
  int blocks, shared;  // blocks of keys that the capacity has; heads that share keys
  RopeAppend
      rope;  // what comes before it, where `turns`: queries and the new key are still to be turned, and cached
  bool turns;
};

// Shared memory: queries [shared, head_dim], then the factors of the parts [shared, blocks].
std::int64_t few_shared_bytes(std::int64_t shared, std::int64_t head_dim, std::int64_t capacity) {
  return static_cast<std::int64_t>(sizeof(float)) * shared * (head_dim + ceil_div(capacity, kFewKeys));
}

// Adds up the parts of blocks [first, last] of keys of the heads from `head` on. factors: [shared, blocks].
__device__ void combine(const FewParams& p, std::int64_t head, int first, int last, float* factors) {
  const std::int64_t dim = p.head_dim, part_size = dim + 2, head_size = p.blocks * part_size;
  const float* parts = p.parts + head * head_size;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  __shared__ float sums[kMostShared];
  for (int h = warp; h < p.shared; h += kFewThreads / 32) {
    const float* of_head = parts + h * head_size;
    float top = -INFINITY, sum = 0.0f;
    for (int part = first + lane; part <= last; part += 32)
      top = fmaxf(top, __ldcg(of_head + part * part_size));
    top = warp_reduce(top, Larger{});
    for (int part = first + lane; part <= last; part += 32) {
      const float factor = expf(__ldcg(of_head + part * part_size) - top);
      factors[h * p.blocks + part] = factor;
      sum = fmaf(__ldcg(of_head + part * part_size + 1), factor, sum);
    }
    sum = warp_reduce(sum, Add{});
    if (lane == 0) sums[h] = sum;
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < p.shared * dim; i += kFewThreads) {
    const std::int64_t h = i / dim, d = i % dim;
    float value = 0.0f;
#pragma unroll 8
    for (int part = first; part <= last; ++part)
      value =
          fmaf(__ldcg(parts + h * head_size + part * part_size + 2 + d), factors[h * p.blocks + part], value);
    store_value(p.out, (head + h) * dim + d, value / sums[h]);
  }
}

// Number d of a head turned by the new token's position. head: its row of numbers as they were multiplied.
__device__ float turned(const RopeAppend& rope, const Values& values, std::int64_t head, std::int64_t d,
                        std::int64_t position) {
  const std::int64_t half = rope.half, i = d < half ? d : d - half;
  const float cosine = rope.cosines[position * half + i], sine = rope.sines[position * half + i];
  const float a = value_at(values, head + i), b = value_at(values, head + i + half);
  return d < half ? a * cosine - b * sine : b * cosine + a * sine;
}

// kQuads: of four numbers, that a lane has of its key: head_dim is at most 16 * kQuads, and a multiple of 4.
template <int kQuads>
__global__ void __launch_bounds__(kFewThreads) attend_one(const __grid_constant__ FewParams p) {
  extern __shared__ float4 memory[];
  __shared__ float scores[kMostShared][kFewKeys], sums[kMostShared];
  __shared__ bool is_last;
  let_next_kernel_start();
  wait_for_kernel_before();
  const std::int64_t dim = p.head_dim, kv_head = blockIdx.y, kv_stride = p.kv_heads * dim;
  const std::int64_t position = *p.first_position;
  const std::int64_t oldest = p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
  const int first_block = static_cast<int>(oldest / kFewKeys),
            last_block = static_cast<int>(position / kFewKeys);
  const int block = static_cast<int>(blockIdx.x);
  if (block < first_block || block > last_block) return;
  const bool alone = first_block == last_block;
  const std::int64_t first_key = std::int64_t{block} * kFewKeys, head = kv_head * p.shared;
  const int quads = static_cast<int>(dim / 4), lane = static_cast<int>(threadIdx.x % kLanesAKey),
            key = static_cast<int>(threadIdx.x / kLanesAKey);
  const bool seen = first_key + key <= position && first_key + key >= oldest;

  // All loads before the first use: the key's part of this lane, and a column of the values.
  const auto* key_row =
      reinterpret_cast<const float4*>(p.keys + (first_key + key) * kv_stride + kv_head * dim);
  float4 own[kQuads];
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const int quad = i * kLanesAKey + lane;
    own[i] = seen && quad < quads && !(p.turns && first_key + key == position) ? key_row[quad] : float4{};
  }
  if (p.turns && first_key + key == position) {
    auto* cached = reinterpret_cast<float4*>(p.rope.keys + position * kv_stride + kv_head * dim);
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int quad = i * kLanesAKey + lane;
      if (quad >= quads) continue;
      const auto at = [&](int j) {
        return turned(p.rope, p.rope.k.values, kv_head * dim, 4 * quad + j, position);
      };
      cached[quad] = own[i] = {at(0), at(1), at(2), at(3)};
    }
  }
  const int keys = static_cast<int>(position - first_key < kFewKeys ? position - first_key + 1 : kFewKeys);
  const auto load_values = [&](std::int64_t d, float(&values)[kFewKeys]) {
    const float* from = p.values + first_key * kv_stride + kv_head * dim + d;
#pragma unroll
    for (int k = 0; k < kFewKeys; ++k)
      values[k] = k < keys && d < dim && !(p.turns && first_key + k == position) ? from[k * kv_stride] : 0.0f;
    if (!p.turns || block != last_block || d >= dim) return;
    const float newest = value_at(p.rope.v.values, kv_head * dim + d);
#pragma unroll
    for (int k = 0; k < kFewKeys; ++k)
      if (first_key + k == position) values[k] = newest;
    p.rope.values[position * kv_stride + kv_head * dim + d] = newest;
  };
  float values[kFewKeys];
  load_values(threadIdx.x, values);

  auto* queries = reinterpret_cast<float*>(memory);
  for (std::int64_t i = threadIdx.x; i < p.shared * dim; i += kFewThreads)
    queries[i] = p.turns ? turned(p.rope, p.rope.q.values, (head + i / dim) * dim, i % dim, position)
                         : p.q[head * dim + i];
  __syncthreads();
  for (int h = 0; h < p.shared; ++h) {
    const auto* query = reinterpret_cast<const float4*>(queries + h * dim);
    float dot = 0.0f;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int quad = i * kLanesAKey + lane;
      const float4 q = quad < quads ? query[quad] : float4{};
      dot = fmaf(q.x, own[i].x, dot);
      dot = fmaf(q.y, own[i].y, dot);
      dot = fmaf(q.z, own[i].z, dot);
      dot = fmaf(q.w, own[i].w, dot);
    }
#pragma unroll
    for (int other = kLanesAKey / 2; other; other /= 2) dot += __shfl_xor_sync(0xFFFFFFFFu, dot, other);
    if (lane == 0) scores[h][key] = seen ? dot * p.scale : -INFINITY;
  }
  __syncthreads();
  const std::int64_t part_size = dim + 2;
  const auto part = [&](std::int64_t h) { return p.parts + ((head + h) * p.blocks + block) * part_size; };
  for (int h = static_cast<int>(threadIdx.x / 32); h < p.shared; h += kFewThreads / 32) {
    const int k = static_cast<int>(threadIdx.x % 32);
    const float score = scores[h][k],
                top = warp_reduce(score, Larger{});  // at least one key of the block is seen
    const float e = expf(score - top), sum = warp_reduce(e, Add{});
    scores[h][k] = e;
    if (k == 0) {
      sums[h] = sum;
      part(h)[0] = top;
      part(h)[1] = sum;
    }
  }
  __syncthreads();
  for (std::int64_t d = threadIdx.x; d < dim; d += kFewThreads) {
    if (d >= kFewThreads) load_values(d, values);
    for (int h = 0; h < p.shared; ++h) {
      float sum = 0.0f;
#pragma unroll
      for (int k = 0; k < kFewKeys; ++k) sum = fmaf(scores[h][k], values[k], sum);
      if (alone)
        store_value(p.out, (head + h) * dim + d, sum / sums[h]);
      else
        part(h)[2 + d] = sum;
    }
  }
  if (alone) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto others = static_cast<unsigned>(last_block - first_block);
    is_last = atomicInc(p.counters + kv_head, others) == others;  // back to zero by itself
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  combine(p, head, first_block, last_block, queries + p.shared * dim);
}

constexpr std::int64_t kMostFewShared = 48 * 1024;
bool takes_few(const DeviceAttention& args) {
  const std::int64_t shared = args.heads / args.kv_heads;
  return args.rows == 1 && args.workspace && shared <= kMostShared && args.head_dim % 4 == 0 &&
         few_shared_bytes(shared, args.head_dim, args.capacity) <= kMostFewShared - 2048;
}

// rope: what is left to be done before, or null.
int launch_one(const RopeAppend* rope, const DeviceAttention& args, Stream stream) {
  FewParams params{};
  params.turns = rope != nullptr;
  if (rope) params.rope = *rope;
  static_cast<DeviceAttention&>(params) = args;
  params.counters = static_cast<unsigned*>(args.workspace);
  params.parts = static_cast<float*>(args.workspace) + args.kv_heads;
  params.blocks = static_cast<int>(ceil_div(args.capacity, kFewKeys));
  params.shared = static_cast<int>(args.heads / args.kv_heads);
  const auto bytes = static_cast<std::size_t>(few_shared_bytes(params.shared, args.head_dim, args.capacity));
  const dim3 grid(static_cast<unsigned>(params.blocks), static_cast<unsigned>(args.kv_heads));
  const auto kernel = args.head_dim <= 64    ? attend_one<4>
                      : args.head_dim <= 128 ? attend_one<8>
                                             : attend_one<16>;
  return launch_early(kernel, grid, kFewThreads, bytes, stream, params);
}

}  // namespace

std::int64_t attention_workspace(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                                 std::int64_t capacity) {
  return static_cast<std::int64_t>(sizeof(float)) *
         (kv_heads + heads * ceil_div(capacity, kFewKeys) * (head_dim + 2));
}

int attention(const DeviceAttention& args, Stream stream) {
  if (args.rows == 0) return cudaSuccess;
  if (args.head_dim > kLargestHeadDim) return cudaErrorInvalidValue;
  if (takes_few(args)) return launch_one(nullptr, args, stream);
  if (args.head_dim <= 32) return launch<32>(args, stream);
  if (args.head_dim <= 64) return launch<64>(args, stream);
  if (args.head_dim <= 128) return launch<128>(args, stream);
  return launch<256>(args, stream);
}

int rope_attention(const RopeAppend& rope, const DeviceAttention& args, Stream stream) {
  if (takes_few(args) && !rope.q_norm && !rope.k_norm) return launch_one(&rope, args, stream);
  const int status = rope_append(rope, stream);
  return status != cudaSuccess ? status : attention(args, stream);
}

}  // namespace halfbyte::cuda
