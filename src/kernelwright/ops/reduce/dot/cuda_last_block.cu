// Each block writes its sum; the last one adds them, always in the same order.
//
// Idea: partial sums in float32, each in a place of its own, so that nothing is rounded to 16 bits
// before the end and no block waits for another. The block that counts itself in last adds them.
// Traffic: both operands once.
// Over `cuda_fast_atomic`: the same bits every time; one atomic operation a block, on a counter.
// Limit: DRAM; below some MiB the three trips to the L2 cache after the last vector.
#include "dot.cuh"

template <typename T, int BLOCK, int VECS>
__global__ void __launch_bounds__(BLOCK)
    dot_last_block(const T *x, const T *other, float *sums, unsigned *arrived, T *y, long long n,
                   int aligned) {
  __shared__ float scratch[32];
  float sum = kw::block_dot<T, BLOCK, VECS>(x, other, n, aligned, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  if (!kw::is_last_block(arrived, gridDim.x)) return;
  sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += BLOCK) sum += __ldcg(sums + i);
  sum = kw::block_reduce<kw::Sum>(sum, scratch);
  if (threadIdx.x == 0) *y = kw::from_float<T>(sum);
}
