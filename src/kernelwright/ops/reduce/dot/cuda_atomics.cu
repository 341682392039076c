// Each block adds its sum to a total in memory by a 16-bit atomic addition.
//
// Idea: one kernel. An addition in 16 bits rounds, and over many additions the error would be too
// large. The value before the addition, which the atomic returns, determines what was rounded off;
// this remainder is added to a second number, and its remainder to a third. The last block adds the
// three numbers.
// Traffic: both operands read once.
// Compared with `native`: no faster; it is the basis of the next rungs.
// Limit: the GPU has atomic additions for pairs of 16-bit numbers only. For a single number the
// compiler emits a compare-and-swap loop, which blocks that run at the same time have to repeat.
#include "dot.cuh"

template <typename T, int BLOCK, int VECS>
__global__ void __launch_bounds__(BLOCK)
    dot_atomics(const T *x, const T *other, T *sums, unsigned *arrived, T *y, long long n,
                int aligned) {
  __shared__ float scratch[32];
  const float part = kw::block_dot<T, BLOCK, VECS>(x, other, n, aligned, scratch);
  if (threadIdx.x == 0)
    kw::add_parts<T>(part, [&](int level, T p) { return atomicAdd(sums + level * 2, p); });
  if (kw::is_last_block(arrived, gridDim.x) && threadIdx.x == 0)
    *y = kw::from_float<T>(kw::take_parts<T, 2>(sums));
}
