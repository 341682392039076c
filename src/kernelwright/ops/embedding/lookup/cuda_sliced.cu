// Column by column: a slice of the table that fits in L2, for all indices, then the next slice.
//
// Idea: a row that is looked up k times is read from DRAM about k times if there is a whole table
// of data between the look-ups. Here blockIdx.y is a slice of `slice` vectors of every row, and
// blocks start slice after slice: at any time they read a part of the table that stays in L2 (with
// an evict-last hint), so that all look-ups except the first hit L2.
// Traffic: N rows written, each row that is looked up read once, the indices once per slice (from
// L2).
// Compared with `cuda_vec16`: N - V fewer rows are read, of N + N in total.
// Limit: L2; a slice shorter than 128 bytes would waste part of each line.
#include "table.cuh"

template <typename T, typename Index, int VEC, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_fwd_sliced(const T *weight, const Index *indices, T *y, long long n, int vectors,
                         int slice, long long rows, long long stride) {
  long long index[UNROLL];
  kw::Vec<T, VEC> v[UNROLL];
  const unsigned first = blockIdx.x * (BLOCK * UNROLL) + threadIdx.x;
  const unsigned column = blockIdx.y * slice + first % slice;
  const bool inside = column < vectors;  // BLOCK is a multiple of `slice`
  const long long row = first / slice, step = BLOCK / slice;
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    index[k] = inside && row + k * step < n ? (long long)indices[row + k * step] : 0;
    assert(index[k] >= 0 && index[k] < rows && "input: an index is out of range");
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k)
    if (inside && row + k * step < n)
      v[k] = kw::load_kept<T, VEC>(weight + index[k] * stride + column * VEC);
#pragma unroll
  for (int k = 0; k < UNROLL; ++k)
    if (inside && row + k * step < n)
      kw::store_once(y + ((row + k * step) * vectors + column) * VEC, v[k]);
}
