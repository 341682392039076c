// One warp per row: k times, the largest remaining element.
//
// Idea: a row of up to 512 elements is held in the registers of a warp, as keys. The lanes
// determine the largest by five exchanges, its owner removes it, and lane j keeps the j-th.
// Traffic: x read once, k results written, coalesced.
// Compared with `cuda_sorted`: no shared memory and no barrier; only the results are put in order.
// Limit: k steps of ten shuffles; k up to 32.
#include <kw/radix.cuh>

template <typename T, bool LARGEST, int EACH, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    topk_warp(const T *x, T *values, long long *indices, long long rows, int columns, int k,
              long long stride) {
  const int lane = threadIdx.x % 32;
  const long long row = (long long)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
  if (row >= rows) return;  // uniform in a warp
  x += row * stride;
  kw::Key keys[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int at = i * 32 + lane;
    const unsigned bits = at < columns ? kw::ordered(x[at]) : 0;
    keys[i] = at < columns ? kw::key_of(LARGEST ? bits : ~bits, at) : 0;
  }
  unsigned mine = 0;
  for (int j = 0; j < k; ++j) {
    kw::Key best = keys[0];
#pragma unroll
    for (int i = 1; i < EACH; ++i) best = max(best, keys[i]);
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      best = max(best, __shfl_xor_sync(0xffffffffu, best, step));
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      if (keys[i] == best) keys[i] = 0;
    if (lane == j) mine = kw::index_of(best);
  }
  if (lane >= k) return;
  values[row * k + lane] = x[mine];
  indices[row * k + lane] = mine;
}
