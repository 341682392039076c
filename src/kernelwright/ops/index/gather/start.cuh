// The initial value of the sums: a copy of x, or zeros.
#pragma once
#include <kw/vec.cuh>

#include "fibers.cuh"

// One vector per thread. Rows of x are `stride` elements apart; a contiguous x is one row.
template <typename T, typename Sum, int WIDTH, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scatter_start(const T *x, Sum *sum, long long vectors, long long columns, long long stride) {
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= vectors) return;
  kw::Vec<Sum, WIDTH> out;
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) out[k] = kw::from_float<Sum>(0.0f);
  if (x) {
    long long row = i;
    const long long column = kw::divide(row, columns / WIDTH) * WIDTH;
    const kw::Vec<T, WIDTH> v = kw::load<T, WIDTH>(x + row * stride + column);
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) out[k] = kw::from_float<Sum>(kw::to_float(v[k]));
  }
  kw::store(sum + i * WIDTH, out);
}
