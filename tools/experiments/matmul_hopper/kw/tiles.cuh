// Which tile of C a block works on: its place in a cluster, the order of tiles, and where they
// begin.
#pragma once
#include "kw/hopper.cuh"

namespace kw {

// Blocks of a cluster lie ROWS below each other and COLS beside each other. Those in a row need the
// same rows of A, those in a column the same columns of B: each loads its part for all of them.
template <int ROWS, int COLS> struct Cluster {
  static constexpr int kRows = ROWS, kCols = COLS, kBlocks = ROWS * COLS;
  int row = 0, col = 0;
  __device__ __forceinline__ Cluster() {
    if (kBlocks == 1) return;
    row = cluster_rank() % ROWS;
    col = cluster_rank() / ROWS;
  }
  // All threads: barriers are open.
  __device__ __forceinline__ void meet() const {
    if constexpr (kBlocks > 1)
      cluster_meet();
    else
      __syncthreads();
  }
  // All threads, before they end: a block may still load for another, or arrive there.
  __device__ __forceinline__ void part() const {
    if constexpr (kBlocks > 1) cluster_meet();
  }
  __device__ __forceinline__ unsigned short row_mask() const {
    unsigned short mask = 0;
    for (int c = 0; c < COLS; c++) mask |= 1 << (row + ROWS * c);
    return mask;
  }
  __device__ __forceinline__ unsigned short col_mask() const {
    return ((1 << ROWS) - 1) << (ROWS * col);
  }
};

// Tiles in the order they are worked on: down a group of rows, then to the next column, so that
// those in flight together share rows and columns in L2.
struct Order {
  unsigned rows, cols, group;
  int m, n;  // of C
  __device__ __forceinline__ int2 place(unsigned tile) const {
    const unsigned strip = tile / (group * cols), in = tile - strip * group * cols;
    const unsigned height = min(group, rows - strip * group), col = in / height;
    return {static_cast<int>(strip * group + in - col * height), static_cast<int>(col)};
  }
  // Where a tile of BM x BN begins. The last ones move back inside the matrix: rows from outside
  // arrive as zeros, but at a fifth of the rate. What two tiles share is computed alike, and stored
  // twice.
  template <int BM, int BN> __device__ __forceinline__ int2 inside(int row, int col) const {
    return {max(0, min(row, m - BM)), max(0, min(col, n - BN))};
  }
};

}  // namespace kw
