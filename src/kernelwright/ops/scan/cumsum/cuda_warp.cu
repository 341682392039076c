// One warp per row: lanes read each other's registers.
//
// Idea: five shuffles scan 32 elements without shared memory or a barrier. A warp iterates over its
// row, 32 elements at a time, and carries the total.
// Traffic: x read once, y written once, coalesced.
// Compared with `cuda_blelloch`: no barrier, so that the warps of a multiprocessor do not wait for
// each other; many short rows fill the GPU.
// Limit: a step of 32 elements waits for the previous one; a few long rows leave most warps unused.
#include "positions.cuh"

template <typename T, bool EXCLUSIVE, bool REVERSE, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_warp(const T *x, T *y, long long rows, long long n, long long stride) {
  using L = kw::local_t<T>;
  using Op = kw::Adding<L>;
  const int lane = threadIdx.x % 32;
  const long long row = (long long)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
  if (row >= rows) return;  // whole warps
  x += row * stride, y += row * n;
  kw::carried_t<T> carried = 0;
  for (long long p = lane; p - lane < n; p += 32) {
    const long long at = kw::place<REVERSE>(p, n);
    const L sum = kw::warp_scan<Op>(p < n ? kw::as<L>(x[at]) : L(0));
    const L before = kw::before_lane<Op>(sum);
    if (p < n) y[at] = kw::stored<T>(carried + (EXCLUSIVE ? before : sum));
    carried += kw::shuffle(sum, 31);
  }
}
