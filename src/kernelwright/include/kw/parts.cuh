// The second step of a sum over rows: rows of partial sums are added in an order that never
// changes.
#pragma once
#include "kw/types.cuh"

namespace kw {

// A block of (32, 8) threads adds 32 columns of `parts` rows of `cols`; its 8 rows of threads share
// the parts.
template <typename T>
__device__ __forceinline__ void add_parts(const float *part, T *sum, int parts, int cols) {
  __shared__ float sums[8][32];
  const int col = blockIdx.x * 32 + threadIdx.x;
  float mine = 0.0f;
  if (col < cols)
    for (int p = threadIdx.y; p < parts; p += 8) mine += part[p * (long long)cols + col];
  sums[threadIdx.y][threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.y > 0 || col >= cols) return;
  float total = 0.0f;
#pragma unroll
  for (int y = 0; y < 8; ++y) total += sums[y][threadIdx.x];
  sum[col] = from_float<T>(total);
}

}  // namespace kw
