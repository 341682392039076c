// Each block writes its sum; the last block adds the sums in a fixed order.
//
// Idea: each block stores its partial sum in float32 in its own element, so that nothing is rounded
// to 16 bits before the end and no block waits for another. The block whose arrival completes a
// counter adds the partial sums.
// Traffic: both operands read once.
// Compared with `cuda_fast_atomic`: bitwise identical results in every run; one atomic operation
// per block, on a counter.
// Limit: DRAM bandwidth; below a few MiB, the three round trips to the L2 cache after the last
// vector.
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
