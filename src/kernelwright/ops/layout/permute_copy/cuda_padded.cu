// A tile of 32 x 32 elements with a row stride of 33.
//
// Idea: with an unused element at the end of each row, the elements of a column lie in 32 banks.
// Traffic: that of `cuda_tile`. Over it: a column is read at once.
// Limit: a thread moves one element at a time, 2 bytes of a 16-bit type: too few bytes are in
// flight.
#include "transpose.cuh"

template <int BYTES, int DOWN>
__global__ void __launch_bounds__(32 * DOWN)
    permute_padded(const void *x, void *y, long long rows, long long row_stride, long long columns,
                   long long column_stride, long long across, long long tiles, kw::Outer outer) {
  kw::transpose_tile<BYTES, DOWN, 1>(x, y, rows, row_stride, columns, column_stride, across, tiles,
                                     outer);
}
