// The result as 16-byte vectors, several in flight, for any widths.
//
// Idea: a thread writes whole vectors of the result, counted across all rows, so that stores are
// always 16 bytes. It computes the coordinates of a vector's first element and increments them from
// there. Loads move READ elements, as many as the widths, the padding and the addresses allow; if
// this is one, adjacent elements of a sector come from L1. All loads of a thread precede its
// stores.
// Traffic: as `cuda_naive`.
// Compared with `cuda_naive`: 64 bytes per thread in flight, and divisions once per 16 bytes.
// Limit: DRAM bandwidth; for odd widths of 16-bit types, L1.
#include <kw/vec.cuh>

#include "box.cuh"

template <typename T, int READ, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    pad_vec16(const T *x, T *y, long long count, kw::Box box, float value) {
  constexpr int WIDTH = kw::kVecWidth<T>, READS = WIDTH / READ;
  const long long first = kw::block_number() * (BLOCK * UNROLL) + threadIdx.x;
  const T fill = kw::from_float<T>(value);
  kw::Vec<T, READ> v[UNROLL][READS];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const long long start = (first + k * BLOCK) * WIDTH;
    if (start >= count) continue;
    kw::Walk walk(box, start);
#pragma unroll
    for (int j = 0; j < READS; ++j) {
#pragma unroll
      for (int e = 0; e < READ; ++e) v[k][j][e] = fill;
      if (walk.inside(box) && start + j * READ < count) v[k][j] = kw::load<T, READ>(x + walk.from);
      if (READS > 1) walk.advance(box, READ);
    }
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const long long start = (first + k * BLOCK) * WIDTH;
    if (start + WIDTH <= count) {
      kw::Vec<T, WIDTH> whole;
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) whole[j] = v[k][j / READ][j % READ];
      kw::store_streaming(y + start, whole);
      continue;
    }
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      if (start + j < count) y[start + j] = v[k][j / READ][j % READ];
  }
}
