// An atomic addition in global memory for each element.
//
// Idea: a thread finds an element's bin and adds 1 to its count, in L2.
// Traffic: x read once; the counts stay in L2. Over `native`: no tensor of bins, and none of ones.
// Limit: additions to the same count follow each other: few bins, or many equal elements, and L2
// takes one at a time.
#include <kw/launch.cuh>

#include "bins.cuh"

template <typename T, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    histogram_global(const T *x, unsigned long long *counts, long long n, int bins, double low,
                     double high) {
  const kw::Bins bin_of(low, high, bins);
  kw::wait_for_launch_before();
  kw::for_each_element<WIDTH, VECS, BLOCK>(x, n, [&](T element) {
    const int bin = bin_of(element);
    if (bin >= 0) atomicAdd(&counts[bin], 1ull);
  });
}
