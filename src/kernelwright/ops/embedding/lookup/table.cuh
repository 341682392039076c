// Tables of rows: each thread handles one vector of a row.
#pragma once
#include "kw/vec.cuh"

namespace kw {

// The row and vector that a thread handles. Threads are numbered along the `vectors` of a row, then
// along rows; each blockIdx.y covers `chunk` rows, so that 32-bit indices are enough.
struct Cell {
  long long row;
  unsigned vector;
  bool inside;

  __device__ __forceinline__ Cell(unsigned item, unsigned vectors, unsigned chunk, long long rows)
      : row((long long)blockIdx.y * chunk + item / vectors),
        vector(item % vectors),
        inside(item / vectors < chunk && row < rows) {}
};

// Loads 16 bytes of a table whose rows are read again, with an evict-last hint for L2.
template <typename T, int N> __device__ __forceinline__ Vec<T, N> load_kept(const T *p) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Vec<T, N>) == 16) {
    unsigned long long policy;
    uint4 bits;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
        : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
        : "l"(p), "l"(policy));
    Vec<T, N> x;
    memcpy(&x, &bits, 16);
    return x;
  }
#endif
  return load<T, N>(p);
}

// Stores 16 bytes that are not read again soon.
template <typename T, int N> __device__ __forceinline__ void store_once(T *p, const Vec<T, N> &x) {
  if constexpr (sizeof(x) == 16)
    store_streaming(p, x);
  else
    store(p, x);
}

}  // namespace kw
