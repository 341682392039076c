// A sum over rows in two steps, in a fixed order: each block adds up a strip of columns into one
// row of partial sums, and a second kernel adds these rows.
#pragma once
#include "kw/types.cuh"

namespace kw {

// A block of (32, DOWN) threads, where each thread has WIDTH columns, adds its sums over
// threadIdx.y. For each column i, one of the threads that share it calls put(i, the total).
template <int DOWN, int WIDTH, typename Put>
__device__ __forceinline__ void add_block(const float (&sum)[WIDTH],
                                          float (&sums)[DOWN][32 * WIDTH], const Put &put) {
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) sums[threadIdx.y][i * 32 + threadIdx.x] = sum[i];
  __syncthreads();
  for (int i = threadIdx.y; i < WIDTH; i += DOWN) {  // one threadIdx.y per column
    float total = 0.0f;
#pragma unroll
    for (int y = 0; y < DOWN; ++y) total += sums[y][i * 32 + threadIdx.x];
    put(i, total);
  }
}

// The same, stored to the block's row of partial sums: `part` is the position of the thread's
// columns in it; nothing is stored unless they are `inside`.
template <int DOWN, int WIDTH>
__device__ __forceinline__ void write_part(const float (&sum)[WIDTH], float *part, bool inside) {
  __shared__ float sums[DOWN][32 * WIDTH];
  add_block(sum, sums, [&](int i, float total) {
    if (inside) part[i] = total;
  });
}

// A block of (32, ROWS) threads adds 32 columns of an array of `parts` rows and `cols` columns; the
// parts are distributed over threadIdx.y.
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
