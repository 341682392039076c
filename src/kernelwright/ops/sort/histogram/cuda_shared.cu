// Counts of a block in shared memory, added to those of all at its end.
//
// Idea: few blocks, each with counts of its own, for many elements: an element's addition meets
// only those of its block, and shared memory takes one a cycle from each of its banks.
// Traffic: x read once. Over `cuda_global`: L2 sees one addition for each block and bin.
// Limit: equal elements, whose additions still follow each other; bins that fit shared memory.
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
