// Fully unrolled: the block size is a template parameter.
//
// Idea: there are few possible block sizes. As a template parameter the size is known to the
// compiler, which removes the loop, the steps that do not apply and every comparison except `tid <
// half`.
// Traffic: as before.
// Compared with `cuda_last_warp`: no loop counter, no run-time bound, and addresses that are part
// of the instructions.
// Limit: a block still adds only two elements per thread and executes a whole tree for them.
#include <kw/accumulate.cuh>

template <typename A> __device__ __forceinline__ void add_from(A *s, unsigned tid, unsigned half) {
  const A sum = s[tid] + s[tid + half];
  __syncwarp();
  s[tid] = sum;
  __syncwarp();
}

template <typename In, typename Out, int BLOCK>
__global__ void __launch_bounds__(BLOCK) sum_unrolled(const In *x, Out *y, long long n) {
  using A = kw::acc_t<In>;
  __shared__ A s[BLOCK];
  const unsigned tid = threadIdx.x;
  const long long i = (long long)blockIdx.x * 2 * BLOCK + tid, j = i + BLOCK;
  s[tid] = (i < n ? kw::widen(x[i]) : A(0)) + (j < n ? kw::widen(x[j]) : A(0));
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
