// Tables of rows, a vector of a row to a thread.
#pragma once
#include "kw/vec.cuh"

namespace kw {

// Where a thread works. Threads count `vectors` of each row, then rows; `chunk` rows a blockIdx.y,
// so that 32 bits can count them.
struct Cell {
  long long row;
  unsigned vector;
  bool inside;

  __device__ __forceinline__ Cell(unsigned item, unsigned vectors, unsigned chunk, long long rows)
      : row((long long)blockIdx.y * chunk + item / vectors),
        vector(item % vectors),
        inside(item / vectors < chunk && row < rows) {}
};

// 16 bytes go to memory as what nobody reads again soon.
template <typename T, int N> __device__ __forceinline__ void store_once(T *p, const Vec<T, N> &x) {
  if constexpr (sizeof(x) == 16)
    store_streaming(p, x);
  else
    store(p, x);
}

}  // namespace kw
