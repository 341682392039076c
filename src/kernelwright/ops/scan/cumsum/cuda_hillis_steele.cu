// One block per row: Hillis and Steele's scan in shared memory.
//
// Idea: step s adds to each element the one 2^s positions before it; after log2(BLOCK) steps each
// holds the sum of all elements up to it. Two buffers alternate, so that a step needs one barrier.
// The block iterates over the row and carries the total of each tile to the next.
// Traffic: x read once, y written once, coalesced.
// Compared with `cuda_serial`: log2 n steps instead of n, and BLOCK threads per row.
// Limit: log2(BLOCK) additions per element where one would suffice, each through shared memory with
// a barrier.
#include "positions.cuh"

template <typename T, bool EXCLUSIVE, bool REVERSE, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_hillis_steele(const T *x, T *y, long long n, long long stride) {
  using L = kw::local_t<T>;
  __shared__ L sums[2][BLOCK];
  x += blockIdx.x * stride, y += blockIdx.x * n;
  const int tid = threadIdx.x;
  kw::carried_t<T> carried = 0;
  for (long long first = 0; first < n; first += BLOCK) {
    const bool inside = first + tid < n;
    const long long at = kw::place<REVERSE>(first + tid, n);
    const L own = inside ? kw::as<L>(x[at]) : L(0);
    int now = 0;
    sums[0][tid] = own;
    __syncthreads();
#pragma unroll
    for (int step = 1; step < BLOCK; step *= 2) {
      L sum = sums[now][tid];
      if (tid >= step) sum += sums[now][tid - step];
      now ^= 1;
      sums[now][tid] = sum;
      __syncthreads();
    }
    const L before = tid ? sums[now][tid - 1] : L(0);
    if (inside) y[at] = kw::stored<T>(carried + (EXCLUSIVE ? before : sums[now][tid]));
    carried += sums[now][BLOCK - 1];
    __syncthreads();
  }
}
