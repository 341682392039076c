// Shared by kernels that move rows of any length in 16-byte vectors: the aligned superset of a row,
// and reductions over a team of any whole number of warps.
#pragma once
#include "kw/softmax.cuh"

namespace kw {

// The 16-byte vectors of memory that overlap a row. Only the first and the last may extend past the
// row; these are moved element by element, with one predicate per element. Memory outside the row
// is neither read nor written.
template <typename T> struct Superset {
  static constexpr int kWidth = kVecWidth<T>;
  using V = Vec<T, kWidth>;
  const int past, n_cols;  // elements from a 16-byte boundary to the row's start; n_cols 0: no row

  __device__ __forceinline__ Superset(const T *row, int n_cols)
      : past(static_cast<int>(reinterpret_cast<unsigned long long>(row) % 16 / sizeof(T))),
        n_cols(n_cols) {}

  // The column of the first element of vector k; negative if the vector starts before the row.
  __device__ __forceinline__ int column(int k) const { return k * kWidth - past; }
  __device__ __forceinline__ bool whole(int col) const {
    return col >= 0 && col <= n_cols - kWidth;
  }
  __device__ __forceinline__ bool touches(int col) const { return col < n_cols; }
  __device__ __forceinline__ bool inside(int col) const {
    return static_cast<unsigned>(col) < static_cast<unsigned>(n_cols);
  }

  // Loads VECS vectors, STEP apart, starting with vector `first`; elements outside the row become
  // `other`. All loads of whole vectors are issued before the vectors at the ends are handled.
  template <int STEP, int VECS>
  __device__ __forceinline__ void load(V (&out)[VECS], const T *row, int first, float other) const {
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const int col = column(v * STEP + first);
      out[v] = load_or<T, kWidth>(row + col, whole(col), other);
    }
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const int col = column(v * STEP + first);
      if (touches(col) && !whole(col)) {
#pragma unroll
        for (int i = 0; i < kWidth; i++)
          if (inside(col + i)) out[v][i] = row[col + i];
      }
    }
  }

  // Stores the elements of the vector at column `col` that lie in the row.
  __device__ __forceinline__ void store(T *row, int col, const V &x) const {
    store_if(row + col, whole(col), x);
    if (touches(col) && !whole(col)) {
#pragma unroll
      for (int i = 0; i < kWidth; i++)
        if (inside(col + i)) row[col + i] = x[i];
    }
  }
};

// The number of lanes of a team that shuffle together: the whole team if it has at most 32 threads,
// else 32.
template <int TEAM> constexpr int kLanes = TEAM < 32 ? TEAM : 32;
// The smallest power of two that is at least n.
__device__ constexpr int power_of_two(int n) { return n < 2 ? 1 : 2 * power_of_two((n + 1) / 2); }

// The sum of what N warps (any number) have stored in shared memory; every warp computes it.
template <int N> __device__ __forceinline__ float sum_of_warps(const float *parts) {
  const int at = threadIdx.x % power_of_two(N);
  return warp_reduce<Sum, power_of_two(N)>(at < N ? parts[at] : 0.0f);
}

// The sum over a team of TEAM threads: a power of two up to 32, or all warps of a block. `parts`
// has one element per warp of the block.
template <int TEAM> __device__ __forceinline__ float team_sum(float x, float *parts) {
  x = warp_reduce<Sum, kLanes<TEAM>>(x);
  if constexpr (TEAM > 32) {
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = sum_of_warps<TEAM / 32>(parts);
  }
  return x;
}

// The same for the maximum of a row and the sum of its exponentials.
template <int TEAM> __device__ __forceinline__ MaxSum team_max_sum(MaxSum x, MaxSum *parts) {
  if constexpr (TEAM > 32) {
    constexpr int kWarps = TEAM / 32;
    const int at = threadIdx.x % power_of_two(kWarps);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp_reduce<power_of_two(kWarps)>(at < kWarps ? parts[at] : MaxSum{-kInfinity, 0.0f});
  }
  return x;
}

}  // namespace kw
