// 16-byte vectors, several in flight, and a gelu of few instructions.
//
// Idea: each thread loads UNROLL independent vectors before it uses the first, so that an SM has
// the 30 KB in flight that it needs; addresses are computed once per vector (`kw/map.cuh`);
// `kw/gelu.cuh` needs one exponential instead of erff or tanhf.
// Traffic: x read once, y written once; an instruction of a warp accesses four 128-byte lines.
// Compared with `triton_block`: whole vectors for any size, and loads that the compiler does not
// reorder.
// Limit: DRAM bandwidth. STREAM adds an evict-first hint to each access.
#include "kw/gelu.cuh"
#include "kw/map.cuh"

template <bool TANH>
KW_FORMULA(Gelu, 1, 1, y[0] = kw::gelu<T, TANH>(x[0]))
template <bool TANH>
KW_FORMULA(GeluBackward, 2, 1, y[0] = x[0] * kw::gelu_slope<T, TANH>(x[1]))

template <typename T, bool TANH, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK) gelu_fwd_vec16(T *x, T *y, long long n) {
  kw::map_flat<Gelu<TANH>, T, BLOCK, UNROLL, STREAM>({x, y}, n);
}

template <typename T, bool TANH, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK) gelu_bwd_vec16(T *gy, T *x, T *gx, long long n) {
  kw::map_flat<GeluBackward<TANH>, T, BLOCK, UNROLL, STREAM>({gy, x, gx}, n);
}
