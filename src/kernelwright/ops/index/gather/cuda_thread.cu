// One element of the result per thread.
//
// Idea: a thread reads an index, then the element that it selects. Elements are copied as bits, so
// that types of one size share a kernel.
// Traffic: the numbers once (8 bytes beside 2 or 4 of the element), the result written once; of x a
// sector of 32 bytes for each element where a fiber's numbers are far apart.
// Limit: two latencies, one after the other, for a single element.
#include "fibers.cuh"

template <int BYTES, typename Index>
__global__ void gather_thread(const void *x, const Index *index, void *y, long long count,
                              kw::Fibers fibers) {
  using T = typename kw::Element<BYTES>::type;
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const kw::Position at(fibers, i);
  const long long number = index[at.row * fibers.index_stride + at.column];
  const long long row = kw::named_row(fibers, at, number);
  static_cast<T *>(y)[i] = static_cast<const T *>(x)[row * fibers.stride + at.column];
}
