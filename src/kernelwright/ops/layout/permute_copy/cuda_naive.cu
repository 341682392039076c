// One element of the result per thread.
//
// Idea: a thread computes where its element lies in x, and copies it.
// Traffic: y written in whole lines; of x, a warp reads 32 sectors of 32 bytes for 32 elements
// where the dimension that it runs along is strided there. Limit: those sectors: 8 times the bytes
// of float32, 16 times those of 16-bit types, unless L1 or L2 still holds them when the next column
// comes; and the divisions of the places.
#include "places.cuh"

template <int BYTES>
__global__ void permute_naive(const void *x, void *y, long long n, long long rows,
                              long long row_stride, long long columns, long long column_stride,
                              kw::Outer outer) {
  using T = typename kw::Element<BYTES>::type;
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long left = i, to = 0;
  long long from = kw::divide(left, rows) * row_stride;
  from += kw::divide(left, columns) * column_stride;
  kw::outer_place(outer, left, from, to);
  static_cast<T *>(y)[i] = static_cast<const T *>(x)[from];
}
