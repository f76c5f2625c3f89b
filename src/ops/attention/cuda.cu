// Attention of a head over blocks of keys: 64 new tokens a thread block, keys and values through shared memory.
#include <cuda_runtime_api.h>

#include "core/shape.h"
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
    float* to = p.out + (first_row + 4 * y + i) * q_stride + head * p.head_dim;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      if (x + 16 * j < p.head_dim) to[x + 16 * j] = out[i][j] / sums[i];
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

}  // namespace

int attention(const DeviceAttention& args, Stream stream) {
  if (args.rows == 0) return cudaSuccess;
  if (args.head_dim <= 32) return launch<32>(args, stream);
  if (args.head_dim <= 64) return launch<64>(args, stream);
  if (args.head_dim <= 128) return launch<128>(args, stream);
  if (args.head_dim <= kLargestHeadDim) return launch<256>(args, stream);
  return cudaErrorInvalidValue;
}

}  // namespace halfbyte::cuda
