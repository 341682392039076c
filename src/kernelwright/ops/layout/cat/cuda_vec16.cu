// The result as 16-byte vectors, several in flight, for any widths of the tensors.
//
// Idea: a thread writes whole vectors of the result, counted across all rows, so that stores are
// always 16 bytes. It finds the tensor of a vector's first element, and searches again only where
// this tensor ends. Loads move READ elements, as many as all widths and addresses allow; if this is
// one, adjacent elements of a sector come from L1. All loads of a thread precede its stores.
// Traffic: as `cuda_naive`.
// Compared with `cuda_naive`: 64 bytes per thread in flight; a division and a search per 16 bytes.
// Limit: DRAM bandwidth; for odd widths of 16-bit types, L1.
#include <kw/vec.cuh>

#include "sources.cuh"

// Vector i of the result. Positions after the last element are not read.
template <typename T, int READ, int WIDTH>
__device__ __forceinline__ void read_vector(const kw::Sources &sources, const kw::Columns &columns,
                                            long long i, long long count,
                                            kw::Vec<T, READ> (&v)[WIDTH / READ]) {
  const long long across = columns.begin[kw::kSources];
  long long row = i * WIDTH;
  long long column = kw::divide(row, across);
  kw::Source<T> source(sources, columns, row, column);
#pragma unroll
  for (int j = 0; j < WIDTH / READ; ++j) {
    if (i * WIDTH + j * READ >= count) return;
    if (j > 0 && column == source.end) {
      if (column == across) ++row, column = 0;
      source = kw::Source<T>(sources, columns, row, column);
    }
    v[j] = kw::load<T, READ>(source.from);
    source.from += READ;
    column += READ;
  }
}

template <int BYTES, int READ, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    cat_vec16(const void *x0, const void *x1, const void *x2, const void *x3, const void *x4,
              const void *x5, const void *x6, const void *x7, void *y, long long count,
              kw::Columns columns) {
  using T = typename kw::Element<BYTES>::type;
  constexpr int WIDTH = 16 / BYTES;
  const kw::Sources sources{{x0, x1, x2, x3, x4, x5, x6, x7}};
  const long long first = kw::block_number() * (BLOCK * UNROLL) + threadIdx.x;
  kw::Vec<T, READ> v[UNROLL][WIDTH / READ];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const long long i = first + k * BLOCK;
    if (i * WIDTH < count) read_vector<T, READ, WIDTH>(sources, columns, i, count, v[k]);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const long long i = first + k * BLOCK;
    T *to = static_cast<T *>(y) + i * WIDTH;
    if ((i + 1) * WIDTH <= count) {
      kw::Vec<T, WIDTH> whole;
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) whole[j] = v[k][j / READ][j % READ];
      kw::store_streaming(to, whole);
      continue;
    }
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      if (i * WIDTH + j < count) to[j] = v[k][j / READ][j % READ];
  }
}
