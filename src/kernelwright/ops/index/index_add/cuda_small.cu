// Few rows: the index of each position is compared with all others.
//
// Idea: x is copied; then the block of a position compares its index with those before it. If it is
// the first of its value, it adds all positions with the same row, in order. Two launches, no
// workspace.
// Traffic: x read and written; the rows that are added to, read and written once more; N indices
// for each of N blocks, from L2.
// Compared with `cuda_atomics`: deterministic, and a row is rounded once.
// Limit: N^2 comparisons, for at most some thousand positions; more positions use `cuda_ordered`.
#include <kw/launch.cuh>
#include <kw/vec.cuh>

template <typename T, int VEC, int BLOCK>
__global__ void index_add_copy(const T *x, T *y, long long rows, long long vectors,
                               long long stride) {
  kw::let_next_launch_start();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= rows * vectors) return;
  const bool whole = stride == vectors * VEC;  // rows without gaps: no division
  kw::store(y + i * VEC,
            kw::load<T, VEC>(x + (whole ? i * VEC : i / vectors * stride + i % vectors * VEC)));
}

template <typename T, typename Index, int VEC, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    index_add_small(const T *x, const Index *index, const T *source, T *y, int n, long long rows,
                    int vectors, long long x_stride, long long source_stride, float alpha) {
  const int own = blockIdx.x;
  const long long row = index[own];
  assert(row >= 0 && row < rows && "index: out of range");
  bool earlier = false;
  for (int i = threadIdx.x; i < own; i += BLOCK) earlier |= index[i] == row;
  if (__syncthreads_or(earlier)) return;
  kw::wait_for_launch_before();
  for (int vector = threadIdx.x; vector < vectors; vector += BLOCK) {
    float sum[VEC] = {}, v[VEC];
    for (int i = own; i < n; ++i) {
      if (index[i] != row) continue;
      kw::to_float(kw::load<T, VEC>(source + i * source_stride + vector * VEC), v);
#pragma unroll
      for (int k = 0; k < VEC; ++k) sum[k] += v[k];
    }
    kw::to_float(kw::load<T, VEC>(x + row * x_stride + vector * VEC), v);
#pragma unroll
    for (int k = 0; k < VEC; ++k) v[k] += alpha * sum[k];
    kw::store(y + (row * vectors + vector) * VEC, kw::from_float<T, VEC>(v));
  }
}
