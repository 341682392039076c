// A block transposes a tile of 32 x 32 elements; the rungs differ in the padding of its rows.
#pragma once
#include "places.cuh"

namespace kw {

// `across` tiles are along the rows of a matrix, `tiles` in the whole matrix. A row is along x's
// contiguous dimension, of `columns` elements; its elements are `column_stride` apart in y.
template <int BYTES, int DOWN, int PADDING>
__device__ __forceinline__ void transpose_tile(const void *x, void *y, long long rows,
                                               long long row_stride, long long columns,
                                               long long column_stride, long long across,
                                               long long tiles, const Outer &outer) {
  using T = typename Element<BYTES>::type;
  __shared__ T tile[32][32 + PADDING];
  long long matrix = block_number(), from = 0, to = 0;
  long long row = divide(matrix, tiles);
  const long long column = divide(row, across) * 32;
  row *= 32;
  if (!outer_place(outer, matrix, from, to)) return;
  const T *in = static_cast<const T *>(x) + from;
  T *out = static_cast<T *>(y) + to;
#pragma unroll
  for (int i = threadIdx.y; i < 32; i += DOWN)
    if (row + i < rows && column + threadIdx.x < columns)
      tile[i][threadIdx.x] = in[(row + i) * row_stride + column + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.y; i < 32; i += DOWN)
    if (column + i < columns && row + threadIdx.x < rows)
      out[(column + i) * column_stride + row + threadIdx.x] = tile[threadIdx.x][i];
}

}  // namespace kw
