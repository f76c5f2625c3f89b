// Gathers rows of an embedding table: a thread block a row.
#include <cuda_runtime_api.h>

#include "device/cuda/widen.cuh"
#include "ops/embedding/cuda.h"

namespace halfbyte::cuda {

namespace {

template <class Stored>
__global__ void __launch_bounds__(256) gather(const __grid_constant__ GatherRows p) {
  const std::int64_t row = blockIdx.x;
  const auto* from = static_cast<const typename Stored::Bits*>(p.table) + p.ids[row] * p.columns;
  for (std::int64_t c = threadIdx.x; c < p.columns; c += 256)
    p.out[row * p.columns + c] = Stored::widen(from[c]);
}

}  // namespace

int gather_rows(const GatherRows& args, Stream stream) {
  const bool known = with_stored(args.dtype, [&](auto stored) {
    gather<decltype(stored)><<<static_cast<unsigned>(args.rows), 256, 0, stream>>>(args);
  });
  return known ? cudaGetLastError() : cudaErrorInvalidValue;
}

}  // namespace halfbyte::cuda
