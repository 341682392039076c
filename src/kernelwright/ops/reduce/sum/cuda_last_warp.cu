// Last warp unrolled: when 64 values are left, one warp finishes without barriers.
//
// Idea: the last six steps belong to one warp, so they need no __syncthreads and no loop.
// The tutorials of 2007 went further: `volatile float *s` and six bare additions, because a warp
// then ran in lockstep. Since Volta the lanes of a warp may run apart; volatile keeps a value out
// of registers but orders nothing between lanes. So each step reads, waits for the warp, writes,
// waits again: __syncwarp makes what one lane wrote visible to the others.
// Traffic: as before.
// Against `cuda_first_add`: one block-wide barrier for each halving above 64, none below.
// Limit: above 64 values the loop and its bound are still run-time numbers.
#include <kw/accumulate.cuh>

// One step among the 32 lanes. All of them take part: s[tid + half] past the values still wanted
// is a value that no later step uses.
template <typename A> __device__ __forceinline__ void add_from(A *s, unsigned tid, unsigned half) {
  const A sum = s[tid] + s[tid + half];
  __syncwarp();
  s[tid] = sum;
  __syncwarp();
}

template <typename In, typename Out>
__global__ void sum_last_warp(const In *x, Out *y, long long n) {
  using A = kw::acc_t<In>;
  extern __shared__ __align__(16) unsigned char memory[];
  A *s = reinterpret_cast<A *>(memory);
  const unsigned tid = threadIdx.x;
  const long long i = (long long)blockIdx.x * 2 * blockDim.x + tid, j = i + blockDim.x;
  s[tid] = (i < n ? kw::widen(x[i]) : A(0)) + (j < n ? kw::widen(x[j]) : A(0));
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 32; half /= 2) {
    if (tid < half) s[tid] += s[tid + half];
    __syncthreads();
  }
  if (tid >= 32) return;
  add_from(s, tid, 32);
  add_from(s, tid, 16);
  add_from(s, tid, 8);
  add_from(s, tid, 4);
  add_from(s, tid, 2);
  add_from(s, tid, 1);
  if (tid == 0) y[blockIdx.x] = kw::narrow<Out>(s[0]);
}
