// 16-byte vectors of rows with a stride: halves of one tensor without a copy.
//
// Idea: a fused gate_up projection stores gate and up as the left and the right half of its rows;
// vectors are counted across all rows, and a division gives the row of each.
// Traffic: gate and up read once, y written once; backward: gy, gate and up read, two gradients
// written. A contiguous copy of both halves would read and write them once more.
// Compared with `cuda_vec16`: any row stride that is a multiple of 16 bytes.
// Limit: DRAM bandwidth; rows of a whole number of vectors.
#include "glu.cuh"

template <typename F, typename T, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    glu_fwd_rows16(T *gate, T *up, T *y, long long rows, int cols, long long gate_stride,
                   long long up_stride) {
  kw::map_rows<F, T, BLOCK, UNROLL, STREAM>({gate, up, y}, {gate_stride, up_stride}, rows, cols);
}

template <typename F, typename T, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    glu_bwd_rows16(T *gy, T *gate, T *up, T *ggate, T *gup, long long rows, int cols,
                   long long gy_stride, long long gate_stride, long long up_stride) {
  kw::map_rows<F, T, BLOCK, UNROLL, STREAM>({gy, gate, up, ggate, gup},
                                            {gy_stride, gate_stride, up_stride}, rows, cols);
}
