// Sets counts to zero before kernels add to them.
#include <kw/launch.cuh>

template <int BLOCK> __global__ void histogram_clear(unsigned long long *counts, int bins) {
  kw::let_next_launch_start();
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < bins) counts[i] = 0;
}
