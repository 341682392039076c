// Several additions per thread: a grid-stride loop before the tree.
//
// Idea: launch fewer blocks than the input has tiles and let each thread step through the input by
// the size of the grid. An addition in registers costs one instruction, and there is one tree for
// ITEMS of them (Brent's theorem: with n / log n workers the total work is O(n) and the time is
// still O(log n)).
// Traffic: x read once; the partial sums become negligible.
// Compared with `cuda_unrolled`: the tree, its barriers and the start of a block occur a 16th as
// often, and a block spends a larger part of its time with loads in flight.
// Limit: each step of the tree in shared memory takes a write, a barrier and a read.
#include <kw/accumulate.cuh>

template <typename A> __device__ __forceinline__ void add_from(A *s, unsigned tid, unsigned half) {
  const A sum = s[tid] + s[tid + half];
  __syncwarp();
  s[tid] = sum;
  __syncwarp();
}

template <typename In, typename Out, int BLOCK>
__global__ void __launch_bounds__(BLOCK) sum_grid_stride(const In *x, Out *y, long long n) {
  using A = kw::acc_t<In>;
  __shared__ A s[BLOCK];
  const unsigned tid = threadIdx.x;
  const long long stride = (long long)gridDim.x * BLOCK;
  A sum = 0;
  for (long long i = (long long)blockIdx.x * BLOCK + tid; i < n; i += stride)
    sum += kw::widen(x[i]);
  s[tid] = sum;
  __syncthreads();
#pragma unroll
  for (unsigned half = BLOCK / 2; half > 32; half /= 2) {
    if (tid < half) s[tid] += s[tid + half];
    __syncthreads();
  }
  if (tid >= 32) return;
#pragma unroll
  for (unsigned half = 32; half > 0; half /= 2) add_from(s, tid, half);
  if (tid == 0) y[blockIdx.x] = kw::narrow<Out>(s[0]);
}
