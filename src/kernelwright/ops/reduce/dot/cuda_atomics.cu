// Each block adds its sum to one in memory, in 16 bits.
//
// Idea: one kernel. An addition in 16 bits rounds, which a sum of many parts cannot afford: what it
// rounds off follows from the number that was there before, and is added to a second number, and
// again to a third. The last block adds the three.
// Traffic: both operands once.
// Over `native`: the step that others build on.
// Limit: the GPU adds pairs of 16-bit numbers. One alone becomes a loop of compare-and-swap, in
// which blocks that come together repeat each other's work.
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
