// One element of the result per thread.
//
// Idea: a thread computes the position of its element in x, and copies it.
// Traffic: y written in whole lines; x read by sectors: if the dimension along a warp is strided in
// x, 32 elements take 32 sectors of 32 bytes.
// Compared with `manual`: no tensor of indices is read.
// Limit: these sectors: 8 times the bytes of float32, 16 times those of 16-bit types, unless L1 or
// L2 still holds them when the next column is read; and the divisions for the positions.
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
