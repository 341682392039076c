// A grid as wide as the rows and as high as their number.
//
// Idea: x counts columns and y counts rows, so that an operand that is one row for all rows (a
// bias) needs no division: its index does not depend on y.
// Traffic: every operand read once, every result written once; a common row stays in the caches.
// Compared with `cuda_thread`: it supports broadcasting.
// Limit: one element per thread; blocks past the end of a short row are idle.
#include "formulas.cuh"

// ROW: the last input is one row for all rows.
template <typename F, typename T, bool ROW, typename... Pointers>
__global__ void elementwise_grid2d(long long rows, long long cols, Pointers... p) {
  T *const at[] = {p...};
  const long long col = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  const long long down = (long long)gridDim.y * blockDim.y;  // at most 65535 blocks in y
  for (long long row = blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += down) {
    const long long i = row * cols + col;
    T *in[F::kIn], *out[F::kOut];
    for (int j = 0; j < F::kIn; ++j) in[j] = at[j] + (ROW && j == F::kIn - 1 ? col : i);
    for (int j = 0; j < F::kOut; ++j) out[j] = at[F::kIn + j] + i;
    kw::map_element<F, T>(in, out);
  }
}
