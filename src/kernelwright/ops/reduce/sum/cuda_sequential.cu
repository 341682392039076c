// Sequential addressing: no bank conflicts.
//
// Idea: turn the tree round. The first half of the values takes the second half on, again and
// again: thread t always touches s[t] and s[t + half], and neighbours touch neighbouring banks.
// Traffic: as before.
// Against `cuda_strided`: every access to shared memory is served at once.
// Limit: half of the threads add nothing, ever: they bring one element and wait.
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
