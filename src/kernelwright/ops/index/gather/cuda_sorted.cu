// Each element of the result adds its run of sorted positions, in order.
//
// Idea: an index and its fiber determine an element of the tensor (scatter_targets). The radix sort
// of embedding's gradient (cuda_order.cu there) sorts positions by element, its pieces add the
// parts of long runs; here each element adds its run and is written once.
// Traffic: x and src read once, the result written once; the indices once, then 24 bytes per
// position for each 8 or 9 bits of the number of elements, and 8 bytes per element for the start of
// its run.
// Compared with `cuda_atomics`: deterministic, rounded once.
// Limit: the sort: three passes for 2^24 elements.
#include "../../embedding/lookup/cuda_sorted.cu"
#include "fibers.cuh"

template <typename Index, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scatter_targets(const Index *index, int *targets, long long count, kw::Fibers fibers) {
  kw::let_next_launch_start();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  const kw::Position at(fibers, i);
  const long long number = index[at.row * fibers.index_stride + at.column];
  targets[i] = int(kw::named_row(fibers, at, number) * fibers.c + at.column);
}

template <typename T, int PIECE, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scatter_elements(const T *x, const T *src, const Pair *pairs, const int *starts,
                     const float *partials, T *y, int count, kw::Fibers fibers) {
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  const int start = starts[i], stop = starts[i + 1];
  long long row = i;
  const long long column = kw::divide(row, fibers.c);
  const T own = x ? x[row * fibers.stride + column] : kw::from_float<T>(0.0f);
  float acc[1] = {};
  if (stop - start <= PIECE) {
    add_rows<UNROLL, T, 1>(src, 1, pairs, start, stop, acc);
  } else {
    for (int piece = start / PIECE; piece <= (stop - 1) / PIECE; ++piece)
      acc[0] += partials[piece * 2ll + (start > piece * PIECE)];  // 1: begins inside it
  }
  y[i] = start == stop ? own : kw::from_float<T>(kw::to_float(own) + acc[0]);
}
