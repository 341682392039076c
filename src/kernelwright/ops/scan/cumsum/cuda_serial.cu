// One thread per row.
//
// Idea: the definition. A thread iterates along a row and writes its running total.
// Traffic: x read once, y written once; but a warp's loads are in 32 rows, one 32-byte sector per
// element, which the next 7 elements find in L1 if it is still there.
// Compared with `manual`: one pass instead of log2 n.
// Limit: only as many threads as rows, and each addition waits for the previous one.
#include "positions.cuh"

template <typename T, bool EXCLUSIVE, bool REVERSE>
__global__ void scan_serial(const T *x, T *y, long long rows, long long n, long long stride) {
  const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  x += row * stride, y += row * n;
  kw::carried_t<T> total = 0;
  for (long long p = 0; p < n; ++p) {
    const long long at = kw::place<REVERSE>(p, n);
    const auto next = total + kw::as<kw::carried_t<T>>(x[at]);
    y[at] = kw::stored<T>(EXCLUSIVE ? total : next);
    total = next;
  }
}
