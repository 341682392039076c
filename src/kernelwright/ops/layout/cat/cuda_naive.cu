// One element of the result per thread.
//
// Idea: a thread computes the row and column of its element, then finds the tensor with this
// column.
// Traffic: every tensor read once, the result written once.
// Compared with `manual`: one launch instead of one per tensor.
// Limit: 2 or 4 bytes per thread in flight, with a division and a search for each of them.
#include "sources.cuh"

template <int BYTES>
__global__ void cat_naive(const void *x0, const void *x1, const void *x2, const void *x3,
                          const void *x4, const void *x5, const void *x6, const void *x7, void *y,
                          long long count, kw::Columns columns) {
  using T = typename kw::Element<BYTES>::type;
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long row = i;
  const long long column = kw::divide(row, columns.begin[kw::kSources]);
  const kw::Sources sources{{x0, x1, x2, x3, x4, x5, x6, x7}};
  static_cast<T *>(y)[i] = *kw::Source<T>(sources, columns, row, column).from;
}
