// Two 16-bit numbers in one atomic addition.
//
// Idea: as `cuda_atomics`, but a block's sum is a pair of numbers: the sum rounded to 16 bits, and
// the remainder rounded to 16 bits. One instruction adds the pair.
// Traffic: both operands read once.
// Compared with `cuda_atomics`: there is no compare-and-swap loop; the L2 cache performs the
// addition.
// Limit: additions to one address are serialized, and their order is not defined, so that results
// may differ in the last bit. Block sums above 65,504 overflow float16.
#include "dot.cuh"

template <typename T, int BLOCK, int VECS>
__global__ void __launch_bounds__(BLOCK)
    dot_half2(const T *x, const T *other, T *sums, unsigned *arrived, T *y, long long n,
              int aligned) {
  using Two = typename kw::Pair<T>::type;
  __shared__ float scratch[32];
  const float part = kw::block_dot<T, BLOCK, VECS>(x, other, n, aligned, scratch);
  if (threadIdx.x == 0) {
    const T high = kw::from_float<T>(part);
    const float left = part - kw::to_float(high);
    float rest[2] = {kw::to_float(high), left == left ? left : 0.0f};
#pragma unroll
    for (int level = 0; level < kw::kLevels; ++level) {
      const Two added = kw::Pair<T>::from(rest[0], rest[1]);
      const Two before = atomicAdd(reinterpret_cast<Two *>(sums) + level, added);
      const Two after = before + added;
      const float2 a = kw::to_float2(added), b = kw::to_float2(before), c = kw::to_float2(after);
      rest[0] = (rest[0] - a.x) + (a.x - (c.x - b.x));
      rest[1] = (rest[1] - a.y) + (a.y - (c.y - b.y));
      if (rest[0] + rest[1] != rest[0] + rest[1]) break;  // infinity or NaN
    }
  }
  if (kw::is_last_block(arrived, gridDim.x) && threadIdx.x == 0)
    *y = kw::from_float<T>(kw::take_parts<T, 2>(sums + 1) + kw::take_parts<T, 2>(sums));
}
