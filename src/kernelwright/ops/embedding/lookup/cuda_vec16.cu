// Rows as 16-byte vectors, several in flight per thread.
//
// Idea: a thread copies UNROLL vectors; it reads all its indices before the first vector and all
// its vectors before the first store, so that all of them together take two latencies. The result
// is stored with a streaming hint, which leaves the caches to rows that are looked up again.
// Traffic: N rows written; N rows read, from L2 if an earlier look-up has left them there.
// Compared with `triton_rows`: no idle lanes for any row length, and no index tile to broadcast.
// Limit: DRAM bandwidth. A table larger than L2 is read about once per look-up.
#include "table.cuh"

template <typename T, typename Index, int VEC, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_fwd_vec16(const T *weight, const Index *indices, T *y, long long n, int vectors,
                        int chunk, long long rows, long long stride) {
  long long index[UNROLL];
  kw::Vec<T, VEC> v[UNROLL];
  const unsigned first = blockIdx.x * (BLOCK * UNROLL) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const kw::Cell at(first + k * BLOCK, vectors, chunk, n);
    index[k] = at.inside ? (long long)indices[at.row] : 0;
    assert(index[k] >= 0 && index[k] < rows && "input: an index is out of range");
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const kw::Cell at(first + k * BLOCK, vectors, chunk, n);
    if (at.inside) v[k] = kw::load<T, VEC>(weight + index[k] * stride + at.vector * VEC);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const kw::Cell at(first + k * BLOCK, vectors, chunk, n);
    if (at.inside) kw::store_once(y + (at.row * vectors + at.vector) * VEC, v[k]);
  }
}
