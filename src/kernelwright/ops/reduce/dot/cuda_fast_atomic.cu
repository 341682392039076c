// A single 16-bit number added as one half of a pair.
//
// Idea: as `cuda_atomics`, but the other half of the pair is -0, whose addition changes nothing, so
// that the atomic addition of pairs can add a single number (PyTorch's fastAtomicAdd).
// Traffic: both operands read once.
// Compared with `cuda_half2`: each block adds one number and does not have to compute a second one.
// Limit: additions to one address are serialized, and their order is not defined, so that results
// may differ in the last bit. Block sums above 65,504 overflow float16.
#include "dot.cuh"

template <typename T, int BLOCK, int VECS>
__global__ void __launch_bounds__(BLOCK)
    dot_fast_atomic(const T *x, const T *other, T *sums, unsigned *arrived, T *y, long long n,
                    int aligned) {
  using Two = typename kw::Pair<T>::type;
  __shared__ float scratch[32];
  const float part = kw::block_dot<T, BLOCK, VECS>(x, other, n, aligned, scratch);
  if (threadIdx.x == 0)
    kw::add_parts<T>(part, [&](int level, T p) {
      const Two pair = kw::Pair<T>::from(kw::to_float(p), -0.0f);
      const Two before = atomicAdd(reinterpret_cast<Two *>(sums) + level, pair);
      return before.x;
    });
  if (kw::is_last_block(arrived, gridDim.x) && threadIdx.x == 0)
    *y = kw::from_float<T>(kw::take_parts<T, 2>(sums));
}
