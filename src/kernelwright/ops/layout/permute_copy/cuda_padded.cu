// A tile of 32 x 32 elements with a row stride of 33.
//
// Idea: with an unused element at the end of each row, the elements of a column are in 32 different
// banks.
// Traffic: as `cuda_tile`.
// Compared with `cuda_tile`: a column is read in a single pass.
// Limit: a thread moves one element at a time, 2 bytes for 16-bit types: too few bytes are in
// flight.
#include "transpose.cuh"

template <int BYTES, int DOWN>
__global__ void __launch_bounds__(32 * DOWN)
    permute_padded(const void *x, void *y, long long rows, long long row_stride, long long columns,
                   long long column_stride, long long across, long long tiles, kw::Outer outer) {
  kw::transpose_tile<BYTES, DOWN, 1>(x, y, rows, row_stride, columns, column_stride, across, tiles,
                                     outer);
}
