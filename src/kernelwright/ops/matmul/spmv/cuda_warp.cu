// A warp, or a part of one, per row.
//
// Idea: WIDTH lanes process adjacent nonzeros of a row; shuffles add their sums. WIDTH is about the
// mean length of a row.
// Traffic: as `cuda_thread`, but whole sectors of indices and values are used at once.
// Compared with `cuda_thread`: coalesced loads, and several lanes share a long row.
// Limit: rows of very different lengths. Only WIDTH lanes process the longest row.
#include "kw/reduce.cuh"
#include "kw/types.cuh"

template <typename T, typename I, int WIDTH>
__global__ void __launch_bounds__(256)
    spmv_warp(const I *__restrict__ rows, const I *__restrict__ columns,
              const T *__restrict__ values, const T *__restrict__ x, T *__restrict__ y, int m) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / WIDTH, lane = threadIdx.x % WIDTH;
  float sum = 0.0f;
  if (row < m) {
    const I end = rows[row + 1];
#pragma unroll 4
    for (I i = rows[row] + lane; i < end; i += WIDTH)
      sum += kw::to_float(values[i]) * kw::to_float(x[columns[i]]);
  }
  sum = kw::warp_reduce<kw::Sum, WIDTH>(sum);
  if (row < m && lane == 0) y[row] = kw::from_float<T>(sum);
}
