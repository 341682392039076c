// One element per thread.
//
// Idea: one kernel for all operators, with the formula as a template argument; a thread computes
// its index, loads one element of each operand and stores its results.
// Traffic: every operand read once, every result written once: the minimum.
// Compared with `compiled`: the kernel is written out.
// Limit: a warp's load of 16-bit elements is 64 bytes, too few in flight to hide DRAM latency;
// index and bounds check cost as much as a short formula.
#include "formulas.cuh"

template <typename F, typename T, typename... Pointers>
__global__ void elementwise_thread(long long n, Pointers... p) {
  T *const at[] = {p...};
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  T *in[F::kIn], *out[F::kOut];
  for (int j = 0; j < F::kIn; ++j) in[j] = at[j] + i;
  for (int j = 0; j < F::kOut; ++j) out[j] = at[F::kIn + j] + i;
  kw::map_element<F, T>(in, out);
}
