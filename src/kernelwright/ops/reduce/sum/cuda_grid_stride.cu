// Several adds a thread: a grid-stride loop before the tree.
//
// Idea: launch fewer blocks than the input would need and let each step over it by the size of
// the grid. Additions in registers cost one instruction; the tree is paid once for ITEMS of them
// (Brent's theorem: with n / log n workers the total work is O(n) and the time still O(log n)).
// Traffic: x once; the partial sums no longer count.
// Against `cuda_unrolled`: the tree, its barriers and the start of a block are paid a 16th as
// often, and more of a block's life is spent with loads in flight.
// Limit: the tree goes through shared memory, with a write, a barrier and a read for each step.
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
