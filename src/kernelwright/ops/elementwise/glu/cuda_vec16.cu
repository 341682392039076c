// 16-byte vectors, several in flight, for tensors with the same memory layout.
//
// Idea: contiguous gate, up and result are treated as one long row, so that an element has the same
// index in all of them; each thread loads its vectors of both before it uses the first.
// Traffic: gate and up read once, y written once; backward: gy, gate and up read, two gradients
// written. The activation stays in registers, and the backward recomputes it.
// Compared with `triton_rows`: whole vectors for any size, and loads that the compiler does not
// reorder.
// Limit: DRAM bandwidth; halves of one tensor do not have the layout of the result.
#include "glu.cuh"

template <typename F, typename T, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK) glu_fwd_vec16(T *gate, T *up, T *y, long long n) {
  kw::map_flat<F, T, BLOCK, UNROLL, STREAM>({gate, up, y}, n);
}

template <typename F, typename T, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    glu_bwd_vec16(T *gy, T *gate, T *up, T *ggate, T *gup, long long n) {
  kw::map_flat<F, T, BLOCK, UNROLL, STREAM>({gy, gate, up, ggate, gup}, n);
}
