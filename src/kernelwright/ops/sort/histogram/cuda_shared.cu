// Counts of a block in shared memory, added to the total counts at its end.
//
// Idea: few blocks, each with its own counts, for many elements. There is a special instruction for
// an addition of 1 whose result is not used: lanes of a warp with the same bin add once, together.
// Traffic: x read once.
// Compared with `cuda_runs`: no copies, and no branches for runs: the hardware combines equal
// elements.
// Limit: DRAM bandwidth for 32-bit elements, conversions to float64 for smaller ones; counts must
// fit in shared memory.
#include <kw/launch.cuh>

#include "bins.cuh"

template <typename T, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    histogram_shared(const T *x, unsigned long long *counts, long long n, int bins, double low,
                     double high) {
  extern __shared__ unsigned seen[];
  for (int i = threadIdx.x; i < bins; i += BLOCK) seen[i] = 0;
  __syncthreads();
  const kw::Bins bin_of(low, high, bins);
  kw::for_each_element<WIDTH, VECS, BLOCK>(x, n, [&](T element) {
    const int bin = bin_of(element);
    if (bin >= 0) atomicAdd(&seen[bin], 1u);
  });
  __syncthreads();
  kw::wait_for_launch_before();
  for (int i = threadIdx.x; i < bins; i += BLOCK)
    if (seen[i]) atomicAdd(&counts[i], (unsigned long long)seen[i]);
}
