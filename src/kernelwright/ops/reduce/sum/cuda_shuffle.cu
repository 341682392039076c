// Warp shuffles: lanes read each other's registers.
//
// Idea: __shfl_xor_sync hands a register across a warp in one instruction. A warp sums itself in
// five of them; one value a warp goes through shared memory, and one more warp reduction ends it.
// The mask names the lanes that must arrive, so the instruction is its own __syncwarp.
// Traffic: as before.
// Against `cuda_grid_stride`: two barriers a block instead of one a halving, 32 words of shared
// memory instead of one a thread.
// Limit: a load brings 2 or 4 bytes. The four that the compiler unrolls to keep 8 or 16 bytes a
// thread in flight, and memory is far away.
#include <kw/accumulate.cuh>
#include <kw/reduce.cuh>

template <typename In, typename Out, int BLOCK>
__global__ void __launch_bounds__(BLOCK) sum_shuffle(const In *x, Out *y, long long n) {
  using A = kw::acc_t<In>;
  __shared__ A scratch[32];
  const long long stride = (long long)gridDim.x * BLOCK;
  A sum = 0;
  for (long long i = (long long)blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride)
    sum += kw::widen(x[i]);
  sum = kw::block_reduce<kw::Sum>(sum, scratch);
  if (threadIdx.x == 0) y[blockIdx.x] = kw::narrow<Out>(sum);
}
