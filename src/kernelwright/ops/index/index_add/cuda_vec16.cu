// The gradient of source: rows of gy selected by index, times alpha, several vectors per thread.
//
// Idea: a thread reads all its indices before the first vector and all its vectors before the first
// store, so that UNROLL vectors together take two latencies.
// Traffic: N rows written; the selected rows read, from L2 if they are selected again.
// Compared with `native`: one kernel, where PyTorch selects and then multiplies.
// Limit: DRAM bandwidth.
#include "../../embedding/lookup/table.cuh"

template <typename T, typename Index, int VEC, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    index_add_bwd_vec16(const T *gy, const Index *index, T *gsource, long long n, int vectors,
                        int chunk, long long rows, long long stride, float alpha) {
  long long row[UNROLL];
  kw::Vec<T, VEC> v[UNROLL];
  const unsigned first = blockIdx.x * (BLOCK * UNROLL) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const kw::Cell at(first + k * BLOCK, vectors, chunk, n);
    row[k] = at.inside ? (long long)index[at.row] : 0;
    assert((!at.inside || (row[k] >= 0 && row[k] < rows)) && "index: out of range");
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const kw::Cell at(first + k * BLOCK, vectors, chunk, n);
    if (at.inside) v[k] = kw::load<T, VEC>(gy + row[k] * stride + at.vector * VEC);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const kw::Cell at(first + k * BLOCK, vectors, chunk, n);
    if (!at.inside) continue;
    float x[VEC];
    kw::to_float(v[k], x);
#pragma unroll
    for (int i = 0; i < VEC; ++i) x[i] *= alpha;
    kw::store_once(gsource + (at.row * vectors + at.vector) * VEC, kw::from_float<T, VEC>(x));
  }
}
