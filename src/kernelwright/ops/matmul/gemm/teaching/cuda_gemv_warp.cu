// One warp per row of the weight.
//
// Idea: the lanes of a warp load adjacent 16-byte vectors of a row and multiply them by the same
// position of every row of x; shuffles add the 32 partial sums at the end.
// Traffic: the weight once, 512 contiguous bytes per load of a warp; x once per row of the weight,
// from L1.
// Compared with `cuda_gemv_thread`: every byte of a sector is used by the load that fetched it.
// Limit: loads of x. Each load of the weight needs one load of every row of x, from a cache that
// delivers 128 bytes per cycle.
#include "../few_rows/dot.cuh"
#include "../few_rows/result.cuh"

constexpr int kWarps = 8;

template <typename T, int MOST>
__global__ void __launch_bounds__(32 * kWarps)
    gemv_warp(const T *__restrict__ weight, const T *__restrict__ x, T *__restrict__ c, int m,
              int n, int k, long long weight_line, long long x_line, long long i_stride,
              long long r_stride) {
  constexpr int kEach = kw::kVecWidth<T>;
  const int i = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (i >= n) return;

  float sums[MOST] = {};
  const T *row = weight + i * weight_line;
#pragma unroll 4
  for (int j = lane * kEach; j < k; j += 32 * kEach) {
    const auto w = kw::load_streaming<T, kEach>(row + j);
#pragma unroll
    for (int r = 0; r < MOST; r++)
      if (r < m) sums[r] = few_rows::dot(w, kw::load<T, kEach>(x + r * x_line + j), sums[r]);
  }
#pragma unroll
  for (int r = 0; r < MOST; r++) sums[r] = kw::warp_reduce<kw::Sum>(sums[r]);
  const few_rows::Product<T> store{c, i_stride, r_stride};
#pragma unroll
  for (int r = 0; r < MOST; r++)
    if (lane == 0 && r < m) store(sums[r], i, r, n);
}
