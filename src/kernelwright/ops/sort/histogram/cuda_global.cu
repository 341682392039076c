// One atomic addition in global memory per element.
//
// Idea: a thread computes an element's bin and adds 1 to its count, in L2.
// Traffic: x read once; the counts stay in L2.
// Compared with `native`: no tensor of bins and no tensor of ones.
// Limit: additions to the same count are serialized in L2, which is slow with few bins or many
// equal elements.
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
