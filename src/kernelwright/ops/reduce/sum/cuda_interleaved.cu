// Interleaved addressing: a tree of additions in shared memory, neighbours first.
//
// Idea: each thread brings one element; in step s the threads whose number is a multiple of 2s
// add the value of the neighbour s places on. One value a block is left; the launch is repeated
// over those until one remains.
// Traffic: x once, and a 256th of it written and read again.
// Against `manual`: one pass over memory instead of one for each halving.
// Limit: in every step the working threads are spread over all warps, so each warp takes both
// sides of the branch to the end, and `%` by a run-time number is a slow instruction.
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
