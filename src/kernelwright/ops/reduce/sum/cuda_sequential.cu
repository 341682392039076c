// Sequential addressing: no bank conflicts.
//
// Idea: reverse the order of the tree. In each step the second half of the values is added to the
// first half: thread t always accesses s[t] and s[t + half], and neighboring threads access
// neighboring banks.
// Traffic: as before.
// Compared with `cuda_strided`: every access to shared memory takes a single transaction.
// Limit: half of the threads never add: they load one element and wait.
#include <kw/accumulate.cuh>

template <typename In, typename Out>
__global__ void sum_sequential(const In *x, Out *y, long long n) {
  using A = kw::acc_t<In>;
  extern __shared__ __align__(16) unsigned char memory[];
  A *s = reinterpret_cast<A *>(memory);
  const unsigned tid = threadIdx.x;
  const long long i = (long long)blockIdx.x * blockDim.x + tid;
  s[tid] = i < n ? kw::widen(x[i]) : A(0);
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (tid < half) s[tid] += s[tid + half];
    __syncthreads();
  }
  if (tid == 0) y[blockIdx.x] = kw::narrow<Out>(s[0]);
}
