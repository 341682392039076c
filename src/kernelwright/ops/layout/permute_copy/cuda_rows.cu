// The last dimension stays the last one: one vector per thread.
//
// Idea: where the last dimension of the result is contiguous in x too, whole vectors of up to 16
// bytes move, and only their places are computed.
// Traffic: x read and y written once, in pieces as long as a row. Over `cuda_naive`: a division per
// 16 bytes, and as many bytes in flight as a copy has.
// Limit: DRAM; rows shorter than a sector of 32 bytes waste the rest of it.
#include <kw/vec.cuh>

#include "places.cuh"

template <int BYTES, int WIDTH, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    permute_rows(const void *x, void *y, long long n, long long rows, long long columns,
                 long long column_stride, kw::Outer outer) {
  using T = typename kw::Element<BYTES>::type;
  const long long i = kw::block_number() * BLOCK + threadIdx.x;
  if (i * WIDTH >= n) return;
  long long left = i, to = 0;
  long long from = kw::divide(left, rows / WIDTH) * WIDTH;
  from += kw::divide(left, columns) * column_stride;
  kw::outer_place(outer, left, from, to);
  kw::store(static_cast<T *>(y) + i * WIDTH, kw::load<T, WIDTH>(static_cast<const T *>(x) + from));
}
