// A tile of 32 x 32 elements through shared memory.
//
// Idea: a warp reads along x's contiguous dimension and writes along y's; in between, a tile in
// shared memory is written by rows and read by columns.
// Traffic: x read and y written once, in whole lines.
// Compared with `cuda_naive`: no sector is read for a single element.
// Limit: a column of the tile is in one bank, so that its 32 elements are read one after another.
#include "transpose.cuh"

template <int BYTES, int DOWN>
__global__ void __launch_bounds__(32 * DOWN)
    permute_tile(const void *x, void *y, long long rows, long long row_stride, long long columns,
                 long long column_stride, long long across, long long tiles, kw::Outer outer) {
  kw::transpose_tile<BYTES, DOWN, 0>(x, y, rows, row_stride, columns, column_stride, across, tiles,
                                     outer);
}
