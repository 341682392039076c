// One block per row: Blelloch's work-efficient scan in shared memory.
//
// Idea: sums of pairs, of pairs of pairs, and so on up a tree (BLOCK * 2 leaves), then down again:
// each node passes to its left child the sum of everything before it, and to its right child that
// plus the left child's sum. A gap after every 32 words puts the threads of a level in different
// banks.
// Traffic: as `cuda_hillis_steele`.
// Compared with `cuda_hillis_steele`: 2 additions per element instead of log2(BLOCK).
// Limit: 2 log2(BLOCK) barriers; half of the threads or more are idle on each level except the
// lowest.
#include "positions.cuh"

__device__ __forceinline__ int padded(int i) { return i + i / 32; }

template <typename T, bool EXCLUSIVE, bool REVERSE, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_blelloch(const T *x, T *y, long long n, long long stride) {
  using L = kw::local_t<T>;
  constexpr int TILE = 2 * BLOCK;
  __shared__ L sums[TILE + TILE / 32];
  x += blockIdx.x * stride, y += blockIdx.x * n;
  const int tid = threadIdx.x;
  kw::carried_t<T> carried = 0;
  for (long long first = 0; first < n; first += TILE) {
    L own[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const long long p = first + tid + k * BLOCK;
      own[k] = p < n ? kw::as<L>(x[kw::place<REVERSE>(p, n)]) : L(0);
      sums[padded(tid + k * BLOCK)] = own[k];
    }
#pragma unroll
    for (int step = 1; step < TILE; step *= 2) {  // up
      __syncthreads();
      const int right = (tid + 1) * 2 * step - 1;
      if (right < TILE) sums[padded(right)] += sums[padded(right - step)];
    }
    __syncthreads();
    const L total = sums[padded(TILE - 1)];
    __syncthreads();
    if (tid == 0) sums[padded(TILE - 1)] = 0;
#pragma unroll
    for (int step = TILE / 2; step > 0; step /= 2) {  // down
      __syncthreads();
      const int right = (tid + 1) * 2 * step - 1;
      if (right < TILE) {
        const L before = sums[padded(right)];
        sums[padded(right)] = before + sums[padded(right - step)];
        sums[padded(right - step)] = before;
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const long long p = first + tid + k * BLOCK;
      const auto before = carried + sums[padded(tid + k * BLOCK)];
      if (p < n) y[kw::place<REVERSE>(p, n)] = kw::stored<T>(EXCLUSIVE ? before : before + own[k]);
    }
    carried += total;
    __syncthreads();
  }
}
