// Counts of a few warps in shared memory, and one addition for a run of elements in the same bin.
//
// Idea: a thread keeps the bin of its last element and how many it has seen of it; only another bin
// makes an addition. Warps have several copies of the counts among them, so that fewer meet.
// Traffic: x read once. Over `cuda_global`: L2 sees one addition for each block and bin, and equal
// elements, which came one after another, cost no addition at all.
// Limit: a branch for each element, taken by lanes at different times; copies that fit.
#include <kw/launch.cuh>

#include "bins.cuh"

// seen[copies][bins]; warp w adds to copy w % copies.
template <typename T, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    histogram_runs(const T *x, unsigned long long *counts, long long n, int bins, double low,
                   double high, int copies) {
  extern __shared__ unsigned seen[];
  for (int i = threadIdx.x; i < bins * copies; i += BLOCK) seen[i] = 0;
  __syncthreads();
  const kw::Bins bin_of(low, high, bins);
  unsigned *own = seen + threadIdx.x / 32 % copies * bins, many = 0;
  int last = -1;
  kw::for_each_element<WIDTH, VECS, BLOCK>(x, n, [&](T element) {
    const int bin = bin_of(element);
    if (bin != last) {
      if (last >= 0) atomicAdd(&own[last], many);
      last = bin, many = 0;
    }
    ++many;
  });
  if (last >= 0) atomicAdd(&own[last], many);
  __syncthreads();
  kw::wait_for_launch_before();
  for (int i = threadIdx.x; i < bins; i += BLOCK) {
    unsigned long long sum = 0;
    for (int c = 0; c < copies; ++c) sum += seen[c * bins + i];
    if (sum) atomicAdd(&counts[i], sum);
  }
}
