// Stores sums from registers directly to memory, two adjacent elements of a row at a time: each 8
// rows of a warp are 8 stores of 16 bytes, half a sector.
#pragma once
#include "epilogue.cuh"

namespace kw {

// Stores this thread's sums of a warp group's 64 rows by 2 N columns, which begin at (row0, col0)
// of C, a matrix of m x n, n even.
template <typename T, int N>
__device__ __forceinline__ void store_directly(const float (&d)[N], T *c, int row0, int col0, int m,
                                               int n) {
  const int lane = threadIdx.x % 32;
  const int row = row0 + threadIdx.x % 128 / 32 * 16 + lane / 4, col = col0 + first_column();
#pragma unroll
  for (int at = 0; at < N; at += 2) {
    const int r = row + at % 4 / 2 * 8, x = col + at / 4 * 8;
    if (r < m && x < n)
      *reinterpret_cast<unsigned *>(c + static_cast<long long>(r) * n + x) =
          packed<T>({d[at], d[at + 1]});
  }
}

}  // namespace kw
