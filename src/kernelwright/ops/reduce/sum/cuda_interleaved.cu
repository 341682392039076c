// Interleaved addressing: a tree of additions in shared memory, adjacent elements first.
//
// Idea: each thread loads one element; in step s the threads whose index is a multiple of 2s add
// the value that is s positions further. One value per block remains; the launch is repeated on
// these values until one remains.
// Traffic: x read once, and a 256th of it written and read again.
// Compared with `manual`: one pass over memory instead of one per halving.
// Limit: in every step the active threads are spread over all warps, so that each warp executes the
// divergent branch until the end; in addition, `%` by a run-time number is slow.
#include <kw/accumulate.cuh>

template <typename In, typename Out>
__global__ void sum_interleaved(const In *x, Out *y, long long n) {
  using A = kw::acc_t<In>;
  extern __shared__ __align__(16) unsigned char memory[];
  A *s = reinterpret_cast<A *>(memory);
  const unsigned tid = threadIdx.x;
  const long long i = (long long)blockIdx.x * blockDim.x + tid;
  s[tid] = i < n ? kw::widen(x[i]) : A(0);
  __syncthreads();
  for (unsigned step = 1; step < blockDim.x; step *= 2) {
    if (tid % (2 * step) == 0) s[tid] += s[tid + step];
    __syncthreads();
  }
  if (tid == 0) y[blockIdx.x] = kw::narrow<Out>(s[0]);
}
