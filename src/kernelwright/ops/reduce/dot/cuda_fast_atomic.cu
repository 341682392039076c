// One 16-bit number added as half of a pair.
//
// Idea: `cuda_atomics`, where the other half of the pair gets -0, which changes nothing: the
// addition of pairs serves single numbers (PyTorch's fastAtomicAdd). Traffic: both operands once.
// Over `cuda_half2`: one part of a block, and no more to compute for it.
// Limit: additions to one address follow each other, and which part comes first is left open, so
// that results may differ in the last bit. Parts above 65,504 overflow float16.
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
