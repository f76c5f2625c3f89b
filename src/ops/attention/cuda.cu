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
  int dim, shared;  // heads that share keys
  int kv_stride;    // numbers between positions
  int blocks;       // of keys that the capacity has
  RopeAppend
      rope;  // what comes before it, where `turns`: queries and the new key are still to be turned, and cached
  bool turns;
};

// Shared memory: queries and the new key [shared + 1, head_dim], then the factors of the parts [shared, blocks].
std::int64_t few_shared_bytes(std::int64_t shared, std::int64_t head_dim, std::int64_t capacity) {
  return static_cast<std::int64_t>(sizeof(float)) *
         ((shared + 1) * head_dim + shared * ceil_div(capacity, kFewKeys));
}

// Adds up the parts of blocks [first, last] of keys of the heads from `head` on. factors: [shared, blocks].
__device__ void combine(const FewParams& p, int head, int first, int last, float* factors) {
  const int part_size = p.dim + 2, warp = static_cast<int>(threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t head_size = std::int64_t{p.blocks} * part_size;
  const float* parts = p.parts + head * head_size;
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
  for (int d = static_cast<int>(threadIdx.x); d < p.dim; d += kFewThreads) {
    float values[kMostShared] = {};
#pragma unroll 4
    for (int part = first; part <= last; ++part)
#pragma unroll
      for (int h = 0; h < kMostShared; ++h)
        if (h < p.shared)
          values[h] = fmaf(__ldcg(parts + h * head_size + part * part_size + 2 + d),
                           factors[h * p.blocks + part], values[h]);
#pragma unroll
    for (int h = 0; h < kMostShared; ++h)
      if (h < p.shared) store_value(p.out, std::int64_t{head + h} * p.dim + d, values[h] / sums[h]);
  }
}

// Turns the queries of the heads from `head` on, and the new key where this thread block has it, by the new token's position:
// to [shared + 1, head_dim]; the key goes to the cache as well.
__device__ void turn(const FewParams& p, int head, int kv_head, int position, bool has_key, float* to) {
  const RopeAppend& rope = p.rope;
  const int half = p.dim / 2, rows = p.shared + (has_key ? 1 : 0);
  const float *cosines = rope.cosines + std::int64_t{position} * half,
              *sines = rope.sines + std::int64_t{position} * half;
  float* cached = rope.keys + std::int64_t{position} * p.kv_stride + kv_head * p.dim;
#pragma unroll 4
  for (int pair = static_cast<int>(threadIdx.x); pair < rows * half; pair += kFewThreads) {
    const int row = pair / half, i = pair - row * half;
    const bool is_key = row == p.shared;
    const Values& values = is_key ? rope.k.values : rope.q.values;
    const int from = (is_key ? kv_head : head + row) * p.dim + i;
    const float cosine = cosines[i], sine = sines[i], a = value_at(values, from),
                b = value_at(values, from + half);
    const float low = a * cosine - b * sine, high = b * cosine + a * sine;
    to[row * p.dim + i] = low;
    to[row * p.dim + i + half] = high;
    if (is_key) {
      cached[i] = low;
      cached[i + half] = high;
    }
  }
}

// kQuads: of four numbers, that a lane has of its key: head_dim is at most 16 * kQuads, and a multiple of 4.
template <int kQuads>
__global__ void __launch_bounds__(kFewThreads) attend_one(const __grid_constant__ FewParams p) {
  extern __shared__ float4 memory[];
  __shared__ float scores[kMostShared][kFewKeys], sums[kMostShared];
  __shared__ bool is_last;
  let_next_kernel_start();
  wait_for_kernel_before();
  const int kv_head = static_cast<int>(blockIdx.y), block = static_cast<int>(blockIdx.x),
            head = kv_head * p.shared;
  const int position = *p.first_position, window = static_cast<int>(p.window);
  const int oldest = window > 0 && position >= window ? position - window + 1 : 0;
  const int first_block = oldest / kFewKeys, last_block = position / kFewKeys;
  if (block < first_block || block > last_block) return;
  const bool has_new = p.turns && block == last_block;  // whose key and value are not in the cache yet
  const int first_key = block * kFewKeys, newest = position - first_key;
  const int cached = has_new             ? newest
                     : newest < kFewKeys ? newest + 1
                                         : kFewKeys;  // keys of the block that are

  // All loads before the first use: the key's part of this lane, and a column of the values.
  const int quads = p.dim / 4, lane = static_cast<int>(threadIdx.x % kLanesAKey),
            key = static_cast<int>(threadIdx.x / kLanesAKey);
  const std::int64_t first_number = std::int64_t{first_key} * p.kv_stride + kv_head * p.dim;
  const auto* key_row =
      reinterpret_cast<const float4*>(p.keys + first_number + (key < cached ? key : 0) * p.kv_stride);
  float4 own[kQuads];
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const int quad = i * kLanesAKey + lane;
    own[i] = key_row[quad < quads ? quad : 0];
  }
  float values[kFewKeys], new_value = 0.0f;
  const auto load_values = [&](int d) {
    const float* from = p.values + first_number + (d < p.dim ? d : 0);
#pragma unroll
    for (int k = 0; k < kFewKeys; ++k) values[k] = from[(k < cached ? k : 0) * p.kv_stride];
    if (!has_new || d >= p.dim) return;
    new_value = value_at(p.rope.v.values, kv_head * p.dim + d);
    p.rope.values[std::int64_t{position} * p.kv_stride + kv_head * p.dim + d] = new_value;
  };
  load_values(static_cast<int>(threadIdx.x));

  auto* queries = reinterpret_cast<float*>(memory);
  if (p.turns)
    turn(p, head, kv_head, position, has_new, queries);
  else
    for (int i = static_cast<int>(threadIdx.x); i < p.shared * p.dim; i += kFewThreads)
      queries[i] = p.q[head * p.dim + i];
  __syncthreads();
  if (has_new && key == newest) {
    const auto* turned = reinterpret_cast<const float4*>(queries + p.shared * p.dim);
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      if (i * kLanesAKey + lane < quads) own[i] = turned[i * kLanesAKey + lane];
  }
  const bool seen = key <= newest && first_key + key >= oldest;
  for (int h = 0; h < p.shared; ++h) {
    const auto* query = reinterpret_cast<const float4*>(queries + h * p.dim);
    float dots[4] = {};
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int quad = i * kLanesAKey + lane;
      if (quad >= quads) continue;
      const float4 q = query[quad];
      dots[0] = fmaf(q.x, own[i].x, dots[0]);
      dots[1] = fmaf(q.y, own[i].y, dots[1]);
      dots[2] = fmaf(q.z, own[i].z, dots[2]);
      dots[3] = fmaf(q.w, own[i].w, dots[3]);
    }
    float dot = (dots[0] + dots[1]) + (dots[2] + dots[3]);
#pragma unroll
    for (int other = kLanesAKey / 2; other; other /= 2) dot += __shfl_xor_sync(0xFFFFFFFFu, dot, other);
    if (lane == 0) scores[h][key] = seen ? dot * p.scale : -INFINITY;
  }
  __syncthreads();
  const int part_size = p.dim + 2;
  const auto part = [&](int h) { return p.parts + (std::int64_t{head + h} * p.blocks + block) * part_size; };
  const bool alone = first_block == last_block;
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
  for (int d = static_cast<int>(threadIdx.x); d < p.dim; d += kFewThreads) {
    if (d >= kFewThreads) load_values(d);
    for (int h = 0; h < p.shared; ++h) {
      float sum = has_new ? scores[h][newest] * new_value : 0.0f;
#pragma unroll
      for (int k = 0; k < kFewKeys; ++k)  // what is not cached is memory that nobody has written
        sum = fmaf(scores[h][k], k < cached ? values[k] : 0.0f, sum);
      if (alone)
        store_value(p.out, std::int64_t{head + h} * p.dim + d, sum / sums[h]);
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
  combine(p, head, first_block, last_block, queries + (p.shared + 1) * p.dim);
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
  params.dim = static_cast<int>(args.head_dim);
  params.kv_stride = static_cast<int>(args.kv_heads * args.head_dim);
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
