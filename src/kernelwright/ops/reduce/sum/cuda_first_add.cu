// First add during load: every thread adds two elements before the tree begins.
//
// Idea: a block takes twice as many elements as it has threads; each thread loads two and stores
// their sum to shared memory.
// Traffic: as before, with half the blocks and half the partial sums.
// Compared with `cuda_sequential`: no thread is idle from the start, two loads per thread are in
// flight, and the cost of a block's tree is spread over twice the elements.
// Limit: the last six steps of the tree have work for one warp only, but all warps of the block
// wait at their barriers.
#include <kw/accumulate.cuh>

template <typename In, typename Out>
__global__ void sum_first_add(const In *x, Out *y, long long n) {
  using A = kw::acc_t<In>;
  extern __shared__ __align__(16) unsigned char memory[];
  A *s = reinterpret_cast<A *>(memory);
  const unsigned tid = threadIdx.x;
  const long long i = (long long)blockIdx.x * 2 * blockDim.x + tid, j = i + blockDim.x;
  s[tid] = (i < n ? kw::widen(x[i]) : A(0)) + (j < n ? kw::widen(x[j]) : A(0));
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (tid < half) s[tid] += s[tid + half];
    __syncthreads();
  }
  if (tid == 0) y[blockIdx.x] = kw::narrow<Out>(s[0]);
}
