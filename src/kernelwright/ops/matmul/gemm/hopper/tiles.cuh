// Which tile of C a block computes: its position in a cluster, the order of tiles, their origins.
#pragma once
#include "kw/hopper/async.cuh"

namespace kw {

// Blocks of a cluster, ROWS x COLS of them. The blocks in a row need the same rows of A, those in a
// column the same columns of B: each loads one part for all of them.
template <int ROWS, int COLS> struct Cluster {
  static constexpr int kRows = ROWS, kCols = COLS, kBlocks = ROWS * COLS;
  int row = 0, col = 0;
  __device__ __forceinline__ Cluster() {
    if (kBlocks == 1) return;
    row = cluster_rank() % ROWS;
    col = cluster_rank() / ROWS;
  }
  // Called by all threads, after barriers are initialized.
  __device__ __forceinline__ void sync() const {
    if constexpr (kBlocks > 1)
      cluster_sync();
    else
      __syncthreads();
  }
  // Called by all threads before they exit: another block may still load into this one, or arrive.
  __device__ __forceinline__ void sync_before_exit() const {
    if constexpr (kBlocks > 1) cluster_sync();
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

// The origin of a tile: (row, col) of matrix `batch` of C.
struct Place {
  int row, col, batch;
};

// C divided into `rows` x `cols` tiles for each matrix of a batch. They are processed in strips of
// `strip` rows, column by column, so that tiles in flight share rows and columns in L2.
struct TileOrder {
  unsigned rows, cols, strip;
  int m, n;  // size of C
  __device__ __forceinline__ Place index(unsigned tile) const {
    const unsigned batch = tile / (rows * cols), in_matrix = tile - batch * rows * cols;
    const unsigned number = in_matrix / (strip * cols),
                   in_strip = in_matrix - number * strip * cols;
    const unsigned height = min(strip, rows - number * strip), col = in_strip / height;
    return {static_cast<int>(number * strip + in_strip - col * height), static_cast<int>(col),
            static_cast<int>(batch)};
  }
  // The origin of a block's tile of BM x BN. The last tiles are moved inside the matrix, since rows
  // outside load several times more slowly; elements that two tiles share are computed identically
  // and stored twice. If the rows of C are contiguous in A, tiles are moved to a multiple of 8,
  // because the copy engine starts at multiples of 16 bytes; n is always such a multiple.
  template <int BM, int BN, bool A_K, typename Cluster>
  __device__ __forceinline__ Place place(unsigned tile, const Cluster &cluster) const {
    const Place at = index(tile);
    const int row = (at.row * Cluster::kRows + cluster.row) * BM;
    const int col = (at.col * Cluster::kCols + cluster.col) * BN;
    const int last = A_K ? m - BM : (m - BM + 7) / 8 * 8;
    return {max(0, min(row, last)), max(0, min(col, n - BN)), at.batch};
  }
};

}  // namespace kw
