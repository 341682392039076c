// One element of the result per thread.
//
// Idea: a thread reads an index, then the element that it selects. Elements are copied as bits, so
// that types of the same size share a kernel.
// Traffic: the indices once (8 bytes for each element of 2 or 4), the result written once; a sector
// of 32 bytes of x per element, if the indices of a fiber are far apart.
// Compared with `manual`: no tensors of coordinates are written.
// Limit: two dependent memory latencies for a single element.
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
