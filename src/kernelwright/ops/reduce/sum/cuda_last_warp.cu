// Last warp unrolled: when 64 values are left, one warp finishes without barriers.
//
// Idea: only one warp is active in the last six steps, so they need neither __syncthreads nor a
// loop. Tutorials of 2007 used `volatile float *s` and six additions without synchronization,
// because a warp ran in lockstep. Since Volta the lanes of a warp can diverge; volatile prevents
// values from being kept in registers, but does not order accesses of different lanes. Each step
// therefore reads, waits for the warp, writes and waits again: __syncwarp makes the write visible
// to the other lanes.
// Traffic: as before.
// Compared with `cuda_first_add`: a block-wide barrier only for the halvings above 64 values.
// Limit: above 64 values, the loop and its bound are still run-time values.
#include <kw/accumulate.cuh>

// One step among the 32 lanes, in which all of them take part: where tid + half is past the values
// that are still needed, the sum is not used by later steps.
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
