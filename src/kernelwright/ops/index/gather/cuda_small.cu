// Short fibers: each index is compared with the others of its fiber.
//
// Idea: x is copied (or zeros are written); then the thread of a position compares its index with
// those before it in the fiber. If it is the first of its value, it adds all positions with the
// same index, in order. Two launches, no workspace.
// Traffic: x read and the result written by vectors; the indices and src once from DRAM, and up to
// m times from L1; the elements that are added to are read and written once more.
// Compared with `cuda_atomics`: deterministic, an element is rounded once, and 16-bit types need no
// float32 sums.
// Limit: m^2 comparisons per fiber, for at most some tens of indices; longer fibers use
// `cuda_sorted`.
#include "start.cuh"

template <typename T, typename Index, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scatter_small(const Index *index, const T *src, T *y, long long count, long long src_stride,
                  kw::Fibers fibers) {
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  const kw::Position at(fibers, i);
  index += at.column;
  src += at.column;
  const long long number = index[at.row * fibers.index_stride];
  long long fiber = at.row;
  const long long own = kw::divide(fiber, fibers.m), first = at.row - own;
  for (long long row = first; row < at.row; ++row)
    if (index[row * fibers.index_stride] == number) return;
  float sum = 0.0f;
  for (long long row = at.row; row < first + fibers.m; ++row)
    if (index[row * fibers.index_stride] == number) sum += kw::to_float(src[row * src_stride]);
  T *to = y + kw::named_row(fibers, at, number) * fibers.c + at.column;
  *to = kw::from_float<T>(kw::to_float(*to) + sum);
}
