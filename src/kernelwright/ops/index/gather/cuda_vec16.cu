// Indices and results as 16-byte vectors, several in flight.
//
// Idea: a thread processes WIDTH adjacent elements of a row (or of a fiber, if rows have one
// element): it reads the indices of all its vectors, then all elements, then stores, so that UNROLL
// * WIDTH elements together take two latencies; the divisions of a position are shared by WIDTH
// elements.
// Traffic: as `cuda_thread`; indices and results have a streaming hint, which leaves the caches to
// x.
// Compared with `cuda_thread`: 16 times as many bytes in flight.
// Limit: DRAM bandwidth; 32-byte sectors of x that L2 does not hold yet.
#include <kw/vec.cuh>

#include "fibers.cuh"

// The number of indices that one instruction reads, out of WIDTH.
template <typename Index, int WIDTH>
constexpr int kNumbers = WIDTH * sizeof(Index) < 16 ? WIDTH : 16 / sizeof(Index);

template <int BYTES, typename Index, int WIDTH, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    gather_vec16(const void *x, const Index *index, void *y, long long vectors, kw::Fibers fibers) {
  using T = typename kw::Element<BYTES>::type;
  constexpr int EACH = kNumbers<Index, WIDTH>;
  const long long first = (long long)blockIdx.x * (BLOCK * UNROLL) + threadIdx.x;
  const int step = fibers.c > 1;  // columns between elements of a vector
  kw::Vec<Index, EACH> number[UNROLL][WIDTH / EACH];
  kw::Vec<T, WIDTH> v[UNROLL];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const long long i = first + k * BLOCK;
    if (i >= vectors) continue;
    const kw::Position at(fibers, i * WIDTH);
    const Index *from = index + at.row * fibers.index_stride + at.column;
#pragma unroll
    for (int j = 0; j < WIDTH / EACH; ++j) number[k][j] = kw::load<Index, EACH>(from + j * EACH);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const long long i = first + k * BLOCK;
    if (i >= vectors) continue;
    const kw::Position at(fibers, i * WIDTH);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const long long row = kw::named_row(fibers, at, number[k][j / EACH][j % EACH]);
      v[k][j] = static_cast<const T *>(x)[row * fibers.stride + at.column + j * step];
    }
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const long long i = first + k * BLOCK;
    if (i >= vectors) continue;
    T *to = static_cast<T *>(y) + i * WIDTH;
    if constexpr (sizeof(v[k]) == 16)
      kw::store_streaming(to, v[k]);
    else
      kw::store(to, v[k]);
  }
}
