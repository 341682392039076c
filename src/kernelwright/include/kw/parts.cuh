// A sum over rows in two steps, in an order that never changes: a block adds up a strip of columns
// into a row of partial sums, and a second kernel adds those rows.
#pragma once
#include "kw/types.cuh"

namespace kw {

// A block of (32, DOWN) threads, of which each has walked down WIDTH columns, adds up its rows of
// threads: `part` is the place of the thread's columns in the block's row, if they are `inside`.
template <int DOWN, int WIDTH>
__device__ __forceinline__ void write_part(const float (&sum)[WIDTH], float *part, bool inside) {
  __shared__ float sums[DOWN][32 * WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) sums[threadIdx.y][i * 32 + threadIdx.x] = sum[i];
  __syncthreads();
  for (int i = threadIdx.y; i < WIDTH; i += DOWN) {  // a row of threads for each of the columns
    float total = 0.0f;
#pragma unroll
    for (int y = 0; y < DOWN; ++y) total += sums[y][i * 32 + threadIdx.x];
    if (inside) part[i] = total;
  }
}

// A block of (32, ROWS) threads adds 32 columns of `parts` rows of `cols`; its rows of threads
// share the parts.
template <int ROWS = 8, typename T>
__device__ __forceinline__ void add_parts(const float *part, T *sum, int parts, int cols) {
  __shared__ float sums[ROWS][32];
  const int col = blockIdx.x * 32 + threadIdx.x;
  float mine = 0.0f;
  if (col < cols)
    for (int p = threadIdx.y; p < parts; p += ROWS) mine += part[p * (long long)cols + col];
  sums[threadIdx.y][threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.y > 0 || col >= cols) return;
  float total = 0.0f;
#pragma unroll
  for (int y = 0; y < ROWS; ++y) total += sums[y][threadIdx.x];
  sum[col] = from_float<T>(total);
}

}  // namespace kw
